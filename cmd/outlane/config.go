package main

import "github.com/spf13/cobra"

func (a *app) config() *cobra.Command {
	group := &cobra.Command{Use: "config", Short: "Look at the configuration"}
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Show every value in force and where it came from",
		Long: "Show every value in force and where it came from: default, the file and line, env and the variable, or flag. Secrets are masked.\n" +
			"With -o yaml it is a configuration file. A wrong configuration is reported, and the exit code is 2.",
		Example: example("outlane config print --config outlane.yaml", "outlane config print -o json"),
	}
	format := output(cmd, formatYAML, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.load(cmd)
		if err != nil {
			return err
		}
		switch *format {
		case formatJSON:
			return cfg.WriteJSON(a.out)
		case formatYAML:
			return cfg.WriteYAML(a.out)
		case formatText:
		}
		return cfg.WriteText(a.out)
	}
	group.AddCommand(cmd)
	return group
}
