// Command registry serves images to the local cluster over plain HTTP on a loopback address.
//
// It is go-containerregistry's registry with its data on disk, so that a restart keeps what was pushed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve on")
	data := flag.String("data", "", "folder for blobs and manifests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serve(ctx, *listen, *data); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, address, data string) error {
	handler, err := newHandler(data, log.New(os.Stderr, "", log.LstdFlags))
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func newHandler(data string, logger *log.Logger) (http.Handler, error) {
	blobs := filepath.Join(data, "blobs")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		return nil, err
	}
	inner := ggcr.New(ggcr.Logger(logger), ggcr.WithBlobHandler(ggcr.NewDiskBlobHandler(blobs)))
	return newKeeper(filepath.Join(data, "manifests"), inner)
}
