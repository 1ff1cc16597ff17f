package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

//go:generate go test -run TestCommandsPageIsUpToDate -update

var update = flag.Bool("update", false, "write the generated documentation")

func TestCommandsPageIsUpToDate(t *testing.T) {
	const path = "../../docs/commands.md"
	want := commandsPage((&app{}).root())
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, want == string(have), "docs/commands.md is not what the commands say: run go generate ./cmd/outlane")
}

func TestEveryCommandExplainsItself(t *testing.T) {
	t.Parallel()
	eachCommand((&app{}).root(), func(cmd *cobra.Command) {
		require.NotEmpty(t, cmd.Short, cmd.CommandPath())
		require.False(t, strings.HasSuffix(cmd.Short, "."), cmd.CommandPath())
	})
}

// commandsPage is docs/commands.md.
func commandsPage(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Commands\n\n<!-- Generated from cmd/outlane. Change it there, then run: go generate ./cmd/outlane -->\n\n")
	b.WriteString("Every command also takes the flags of the [configuration](configuration.md), such as `--database-url`.\n")
	b.WriteString("Exit codes: 0 done, 1 something failed or faults were found, 2 the command line or the configuration is wrong. Errors are one line each, on\nstandard error.\n")
	eachCommand(root, func(cmd *cobra.Command) {
		if cmd == root || cmd.HasSubCommands() && cmd.Long == "" {
			return
		}
		long := cmd.Long
		if long == "" {
			long = cmd.Short + "."
		}
		fmt.Fprintf(&b, "\n## `%s`\n\n%s\n", strings.TrimSuffix(cmd.UseLine(), " [flags]"), long)
		if cmd.Example != "" {
			b.WriteString("\n" + indent(cmd.Example) + "\n")
		}
		var rows strings.Builder
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" {
				return
			}
			name := "`--" + f.Name + "`"
			if f.Shorthand != "" {
				name = "`-" + f.Shorthand + "`, " + name
			}
			value := f.DefValue
			if value == "false" || value == "[]" {
				value = ""
			}
			if value != "" {
				value = "`" + value + "`"
			}
			fmt.Fprintf(&rows, "| %s | %s | %s |\n", name, f.Usage, value)
		})
		if rows.Len() > 0 {
			b.WriteString("\n| flag | what it means | default |\n|---|---|---|\n" + rows.String())
		}
	})
	return b.String()
}

func indent(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = "    " + strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n")
}

// eachCommand visits cmd and all below it, but for help texts and what cobra adds.
func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			eachCommand(child, visit)
		}
	}
}
