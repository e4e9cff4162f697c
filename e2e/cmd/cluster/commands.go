package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"idlecount.dev/idlecount/e2e/cluster"
)

func newCommand() *cobra.Command {
	var folder string
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "The local Kubernetes cluster of idlecount's tests and demo",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&folder, "folder", "", "folder for the cluster's files (default "+cluster.DefaultFolder+")")
	root.AddCommand(upCommand(&folder), downCommand(&folder))
	return root
}

func upCommand(folder *string) *cobra.Command {
	var kwok int
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster, or repair it, and print the path of its kubeconfig",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options := cluster.Options{Folder: *folder, Progress: cmd.ErrOrStderr()}
			if cmd.Flags().Changed("kwok") {
				options.KWOKNodes = &kwok
			}
			c, err := cluster.Up(cmd.Context(), options)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), c.Kubeconfig())
			fmt.Fprintf(cmd.ErrOrStderr(), "\nimages pushed to %s/… can be pulled by pods; to use the cluster:\n  export KUBECONFIG=%s\n", c.Registry(), c.Kubeconfig())
			return nil
		},
	}
	cmd.Flags().IntVar(&kwok, "kwok", 0, "number of KWOK nodes, which only pretend to run pods (default: as many as there are)")
	return cmd
}

func downCommand(folder *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and remove all that belongs to it, except the programs that were built",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cluster.Down(cmd.Context(), cluster.Options{Folder: *folder, Progress: cmd.ErrOrStderr()})
		},
	}
}
