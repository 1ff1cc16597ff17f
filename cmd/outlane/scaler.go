package main

import (
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/outlane/outlane/internal/scaler"
)

// scalerConnections are enough: a question is one short statement.
const scalerConnections = 4

func (a *app) scaler() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scaler",
		Short: "Tell KEDA how many workers are wanted",
		Long: "Answer KEDA's questions as an external scaler, with push, from outbox_workers_wanted. The trigger's metadata may say target, the waiting\n" +
			"events that one worker is worth (10000), and most, the most workers. The role needs outlane migrate grants --scaler, and nothing else.\n" +
			"While the database does not answer, questions fail, so that KEDA's fallback holds.",
		Example: example("outlane scaler --addr :9090"),
	}
	addr := cmd.Flags().String("addr", ":9090", "address to listen on")
	interval := cmd.Flags().Duration("push-interval", scaler.DefaultPushInterval, "how often to look whether any worker is wanted, to tell KEDA at once")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *interval < time.Millisecond {
			return usagef("--push-interval is %s; want at least 1ms", *interval)
		}
		cfg, err := a.load(cmd, "database.url")
		if err != nil {
			return err
		}
		log := a.logger()
		db, err := a.openStore(log, "outlane scaler", min(scalerConnections, cfg.Database.MaxConnections))
		if err != nil {
			return err
		}
		defer db.Close()
		listener, err := (&net.ListenConfig{}).Listen(cmd.Context(), "tcp", *addr)
		if err != nil {
			return fmt.Errorf("listen: %w; choose another --addr", err)
		}
		log.Info("answering KEDA", "addr", listener.Addr().String(), "version", version)
		return scaler.Serve(cmd.Context(), listener, scaler.Config{Database: db, PushInterval: *interval, Logger: log})
	}
	return cmd
}
