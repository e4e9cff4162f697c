package main

import (
	"fmt"
	"time"

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
	root.AddCommand(upCommand(&folder), downCommand(&folder), statusCommand(&folder), logsCommand(&folder))
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
		Long: `Stop the cluster and remove all that belongs to it, except the programs that were built: they cost many minutes
and lie in the folder "bin" of the cluster's folder. A kind cluster that the demo made is removed too.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			progress := cmd.ErrOrStderr()
			if err := cluster.Down(cmd.Context(), cluster.Options{Folder: *folder, Progress: progress}); err != nil {
				return err
			}
			_, err := cluster.RemoveKind(cmd.Context(), progress)
			return err
		},
	}
}

func statusCommand(folder *string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show each component and node; exit status 1 unless all is well",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("no output format %q, there is json", output)
			}
			status, err := cluster.ReadStatus(cmd.Context(), cluster.Options{Folder: *folder})
			if err != nil {
				return err
			}
			if output == "json" {
				err = writeJSON(cmd.OutOrStdout(), status)
			} else {
				err = writeTable(cmd.OutOrStdout(), status, time.Now())
			}
			if err == nil && status.State != cluster.Running {
				err = fmt.Errorf("the cluster is %s, start or repair it with: cluster up", status.State)
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "output format: json (default: a table)")
	return cmd
}

func logsCommand(folder *string) *cobra.Command {
	var lines int
	cmd := &cobra.Command{
		Use:   "logs [component]…",
		Short: "Print the end of the logs of components, of all if none is named",
		RunE: func(cmd *cobra.Command, args []string) error {
			components := cluster.Components()
			if len(args) > 0 {
				components = nil
			}
			for _, name := range args {
				component, err := cluster.ParseComponent(name)
				if err != nil {
					return err
				}
				components = append(components, component)
			}
			return writeLogs(cmd.OutOrStdout(), cluster.Options{Folder: *folder}, components, lines, len(args) > 0)
		},
	}
	cmd.Flags().IntVarP(&lines, "lines", "n", 20, "how many lines of each")
	return cmd
}
