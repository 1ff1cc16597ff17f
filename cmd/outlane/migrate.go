package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/outlane/outlane/internal/config"
	"github.com/outlane/outlane/migrations"
	"github.com/outlane/outlane/store"
)

func (a *app) migrate() *cobra.Command {
	group := &cobra.Command{
		Use:   "migrate",
		Short: "Install the tables, bring them up to date, or remove them",
		Long: "Install the tables, bring them up to date, or remove them. Any number of processes may run it at once. The address must lead to the\n" +
			"server itself, not through a pooler in transaction mode.",
	}
	group.AddCommand(a.migrateUp(), a.migrateDown(), a.migrateStatus(), a.migrateVersion(), a.migrateGrants())
	return group
}

type migrationView struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"`
}

func viewMigrations(list []migrations.Migration) []migrationView {
	views := make([]migrationView, len(list))
	for i, m := range list {
		views[i] = migrationView{Version: m.Version, Name: m.Name}
		if !m.AppliedAt.IsZero() {
			views[i].AppliedAt = &list[i].AppliedAt
		}
	}
	return views
}

func (a *app) migrateUp() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Install the tables, or bring them up to date",
		Long: "Install the tables, or bring them up to date. The first time, --partitions and --partition-key-field (or the configuration's values) are\n" +
			"stored in the database; later, other values are refused. If the configuration has routes, the database gets them, so that events inserted\n" +
			"without a stream get one at once.",
		Example: example("outlane migrate up --partitions 16", "outlane migrate up --schema outbox --partition-key-field account_id"),
	}
	format := output(cmd, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.load(cmd, "database.url")
		if err != nil {
			return err
		}
		options := migrations.Options{Partitions: cfg.Partitions}
		if cfg.Origin("partitionKeyField").Kind != config.FromDefault {
			options.KeyField = cfg.PartitionKeyField
		}
		applied, err := migrations.Up(cmd.Context(), cfg.Database.URL, cfg.Database.Schema, options)
		if err != nil {
			return a.explainMigration(err)
		}
		s, err := a.openStore(slog.New(slog.DiscardHandler), "outlane migrate", cfg.Database.MaxConnections)
		if err != nil {
			return err
		}
		defer s.Close()
		routes, err := a.storeRoutes(cmd, s)
		if err != nil {
			return err
		}
		meta, err := s.Meta(cmd.Context())
		if err != nil {
			return fmt.Errorf("look at the result: %w", err)
		}
		if *format == formatJSON {
			return printJSON(a.out, map[string]any{
				"applied": viewMigrations(applied), "version": meta.SchemaVersion, "partitions": meta.Partitions, "partition_key_field": meta.KeyField,
				"routes": routes,
			})
		}
		for _, m := range applied {
			if err := say(a.out, "applied %s", m.Name); err != nil {
				return err
			}
		}
		return say(a.out, "schema %s is at version %d: %d partitions by %s, %d topic patterns routed", plain(cfg.Database.Schema), meta.SchemaVersion,
			meta.Partitions, plain(meta.KeyField), routes)
	}
	return cmd
}

// explainMigration says what to change where settings contradict what is stored.
func (a *app) explainMigration(err error) error {
	var conflict *migrations.ConflictError
	if errors.As(err, &conflict) {
		path := "partitions"
		if conflict.Setting != path {
			path = "partitionKeyField"
		}
		return usageError{fmt.Errorf("migrate up: %w; leave %s out (it came from %s)", err, path, a.cfg.Origin(path))}
	}
	return fmt.Errorf("migrate up: %w", err)
}

// storeRoutes gives the database the configured routes, if the configuration has any, and returns how many topics the database routes now.
func (a *app) storeRoutes(cmd *cobra.Command, s *store.Store) (int, error) {
	if a.cfg.Origin("routes").Kind != config.FromDefault {
		routes := []store.Route{}
		for _, r := range a.cfg.Routes {
			for _, topic := range r.Topics {
				routes = append(routes, store.Route{Topic: topic, Stream: r.Stream})
			}
		}
		if err := s.ReplaceRoutes(cmd.Context(), routes); err != nil {
			return 0, fmt.Errorf("store the routes: %w", err)
		}
	}
	routes, err := s.Routes(cmd.Context())
	if err != nil {
		return 0, fmt.Errorf("read the routes: %w", err)
	}
	return len(routes), nil
}

func (a *app) migrateDown() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove the tables, with every event in them",
		Long:  "Remove the tables, with every event in them. It asks for --yes.",
	}
	yes := cmd.Flags().Bool("yes", false, "really do it")
	format := output(cmd, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.load(cmd, "database.url")
		if err != nil {
			return err
		}
		if !*yes {
			return usagef("migrate down removes outbox_events and all other tables of Outlane from schema %s, with everything in them; give --yes to do it",
				cfg.Database.Schema)
		}
		undone, err := migrations.Down(cmd.Context(), cfg.Database.URL, cfg.Database.Schema)
		if err != nil {
			return fmt.Errorf("migrate down: %w", err)
		}
		if *format == formatJSON {
			return printJSON(a.out, map[string]any{"removed": viewMigrations(undone)})
		}
		for _, m := range undone {
			if err := say(a.out, "removed %s", m.Name); err != nil {
				return err
			}
		}
		return say(a.out, "schema %s has no outbox", plain(cfg.Database.Schema))
	}
	return cmd
}

func (a *app) migrateStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List what was applied and what is pending",
		Long:  "List what was applied and what is pending. Exit codes: 0 nothing is pending, 1 something is.",
	}
	format := output(cmd, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.load(cmd, "database.url")
		if err != nil {
			return err
		}
		list, err := migrations.Status(cmd.Context(), cfg.Database.URL, cfg.Database.Schema)
		if err != nil {
			return fmt.Errorf("migrate status: %w", err)
		}
		if *format == formatJSON {
			err = printJSON(a.out, map[string]any{"migrations": viewMigrations(list)})
		} else {
			rows := [][]string{{"MIGRATION", "APPLIED"}}
			for _, m := range list {
				when := "pending"
				if !m.AppliedAt.IsZero() {
					when = m.AppliedAt.Local().Format(time.DateTime)
				}
				rows = append(rows, []string{m.Name, when})
			}
			err = table(a.out, rows)
		}
		if err != nil {
			return err
		}
		for _, m := range list {
			if m.AppliedAt.IsZero() {
				return errFaults
			}
		}
		return nil
	}
	return cmd
}

func (a *app) migrateVersion() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Show the version that the database is at, and the newest one"}
	format := output(cmd, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.load(cmd, "database.url")
		if err != nil {
			return err
		}
		have, err := migrations.Version(cmd.Context(), cfg.Database.URL, cfg.Database.Schema)
		if err != nil {
			return fmt.Errorf("migrate version: %w", err)
		}
		if *format == formatJSON {
			return printJSON(a.out, map[string]int64{"version": have, "newest": migrations.Newest()})
		}
		return say(a.out, "%d (newest is %d)", have, migrations.Newest())
	}
	return cmd
}

func (a *app) migrateGrants() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "grants",
		Short: "Give roles the least rights that they need",
		Long: "Give existing roles the least rights that they need: a producer can insert events, not read or mark them; a worker can read and mark\n" +
			"them, not insert or delete; a scaler can call outbox_workers_wanted. Nothing is taken away.",
		Example: example("outlane migrate grants --producer app --worker outlane", "outlane migrate grants --scaler keda"),
	}
	var roles migrations.Roles
	cmd.Flags().StringVar(&roles.Producer, "producer", "", "role that inserts events")
	cmd.Flags().StringVar(&roles.Worker, "worker", "", "role that workers and operators log in as")
	cmd.Flags().StringVar(&roles.Scaler, "scaler", "", "role that the autoscaler logs in as")
	format := output(cmd, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if roles == (migrations.Roles{}) {
			return usagef("no role was named; give --producer, --worker or --scaler")
		}
		cfg, err := a.load(cmd, "database.url")
		if err != nil {
			return err
		}
		if err := migrations.Grants(cmd.Context(), cfg.Database.URL, cfg.Database.Schema, roles); err != nil {
			return fmt.Errorf("migrate grants: %w", err)
		}
		if *format == formatJSON {
			return printJSON(a.out, map[string]string{"producer": roles.Producer, "worker": roles.Worker, "scaler": roles.Scaler})
		}
		for _, g := range [][2]string{{roles.Producer, "insert events"}, {roles.Worker, "deliver events"}, {roles.Scaler, "ask how many workers are wanted"}} {
			if g[0] == "" {
				continue
			}
			if err := say(a.out, "%s can %s in schema %s", plain(g[0]), g[1], plain(cfg.Database.Schema)); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}
