// Command cmd runs a private control plane of Kubernetes until it is stopped: `make cluster`. With -build it only builds it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/outlane/outlane/internal/controlplane"
)

func main() {
	only := flag.Bool("build", false, "only build it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only bool) error {
	program, err := controlplane.Build(ctx, os.Stderr)
	if err != nil || only {
		return err
	}
	cluster, err := controlplane.Start(ctx, controlplane.Options{Program: program, Controllers: true})
	if err != nil {
		return err
	}
	fmt.Printf("Kubernetes runs until Ctrl-C. In another shell:\n  export KUBECONFIG=%s\n  alias kubectl=\"%s kubectl\"\n",
		cluster.Kubeconfig(controlplane.Admin), program)
	<-ctx.Done()
	return cluster.Close()
}
