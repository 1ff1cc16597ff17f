package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set when a release is built.
var version = "dev"

func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}

func versionText() string {
	text := version
	if r := revision(); r != "" {
		text += " " + r[:min(len(r), 12)]
	}
	return text + " " + runtime.Version()
}

func (a *app) version() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Show the version"}
	format := output(cmd, formatJSON)
	cmd.RunE = func(*cobra.Command, []string) error {
		if *format == formatJSON {
			return printJSON(a.out, map[string]string{"version": version, "revision": revision(), "go": runtime.Version()})
		}
		return say(a.out, "outlane %s", versionText())
	}
	return cmd
}
