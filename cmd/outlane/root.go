package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outlane/outlane/internal/config"
)

const rootHelp = `Outlane moves events from a Postgres outbox table to NATS JetStream, in order, by a pool of workers that share the work.

  export OUTLANE_DATABASE_URL=postgres://user@host/database OUTLANE_NATS_URL=nats://host:4222
  outlane migrate up        make the tables
  outlane streams apply     make the streams that the configuration names
  outlane worker            move events; start as many as there is work for, on any host
  outlane status            what waits, what is stuck and why

Every value of the configuration can be set in a file, by a variable or by a flag: see outlane help settings.
Exit codes: 0 done, 1 something failed or faults were found, 2 the command line or the configuration is wrong.`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "outlane",
		Short:         "Move events from a Postgres outbox to NATS JetStream, in order",
		Long:          rootHelp,
		Version:       versionText(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("outlane {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().SortFlags = false
	config.AddFlags(root.PersistentFlags())
	root.SetFlagErrorFunc(flagError)
	root.AddGroup(&cobra.Group{ID: "setup", Title: "Set up:"}, &cobra.Group{ID: "run", Title: "Run:"}, &cobra.Group{ID: "operate", Title: "Look and repair:"})
	add := func(id string, cmds ...*cobra.Command) {
		for _, cmd := range cmds {
			cmd.GroupID = id
			root.AddCommand(cmd)
		}
	}
	add("setup", a.migrate(), a.streams(), a.config())
	add("run", a.worker(), a.scaler(), a.demo(), a.bench())
	add("operate", a.status(), a.dlq(), a.verify(), a.send())
	root.AddCommand(a.version(), &cobra.Command{Use: "settings", Short: "Every flag and variable of the configuration", Long: config.HelpText()})
	checkArguments(root)
	return root
}

// checkArguments makes commands that only hold others say so when they are called with something else, and all others refuse arguments
// unless they take some.
func checkArguments(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		checkArguments(child)
	}
	switch {
	case cmd.HasSubCommands() && !cmd.Runnable():
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			text := fmt.Sprintf("unknown command %q", cmd.CommandPath()+" "+args[0])
			var names []string
			for _, child := range cmd.Commands() {
				names = append(names, child.Name())
			}
			if near := config.Nearest(args[0], names); near != "" {
				return usagef("%s; did you mean %s?", text, near)
			}
			return usagef("%s; see %s --help", text, cmd.CommandPath())
		}
	case cmd.Runnable() && cmd.Args == nil:
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("%s takes no argument such as %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())
			}
			return nil
		}
	}
}

// flagError names the flag that was most likely meant.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return usagef("%w; see %s --help", err, cmd.CommandPath())
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	name := unknown.GetSpecifiedName()
	if near := config.Nearest(name, names); near != "" {
		return usagef("unknown flag --%s; did you mean --%s?", name, near)
	}
	return usagef("unknown flag --%s; see %s --help and outlane help settings", name, cmd.CommandPath())
}

// example indents the lines of a command's examples.
func example(lines ...string) string { return "  " + strings.Join(lines, "\n  ") }
