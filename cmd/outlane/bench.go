package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outlane/outlane/internal/bench"
)

const formatMarkdown format = "markdown"

func (a *app) bench() *cobra.Command {
	var opts bench.Options
	var smoke, full bool
	var file, write string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure on this machine what a pool of workers does, each figure beside something to compare it with",
		Long: "Start a private Postgres, NATS servers and workers, each a process of its own, and measure: drains of a backlog beside the least that they can cost and\n" +
			"beside plain pollers, latency, the cost of inserts, of a large table, of idling, and more. Runs of both sides of a ratio alternate, and the median counts.\n" +
			"Nothing else should run on the machine meanwhile. It takes a quarter of an hour; sections can be chosen by their letters. Linux only.",
		Example: example("outlane bench", "outlane bench --only a,e -o json", "outlane bench -o markdown --json figures.json --write docs/performance.md"),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&opts.Only, "only", nil, "letters of the sections to run, such as a,e")
	flags.BoolVar(&smoke, "smoke", false, "run every section with next to nothing, to see that it works; the figures mean nothing")
	flags.BoolVar(&full, "full", false, "measure more, for an hour or so (also by BENCH_FULL=1)")
	flags.StringVar(&opts.Profile, "profile", "", "a folder for CPU profiles of the processes")
	flags.StringVar(&file, "json", "", "a file for the whole report as JSON, whatever is printed")
	flags.StringVar(&write, "write", "", "a Markdown file that takes the tables between its lines <!-- bench --> and <!-- /bench -->")
	format := output(cmd, formatJSON, formatMarkdown)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, letter := range opts.Only {
			if !slices.Contains(bench.Sections(), letter) {
				return usagef("--only has %q; the sections are %s", letter, strings.Join(bench.Sections(), ","))
			}
		}
		full = full || slices.Contains(a.environ, "BENCH_FULL=1")
		switch {
		case smoke:
			opts.Size = bench.Smoke
		case full:
			opts.Size = bench.Full
		default:
			opts.Size = bench.Normal
		}
		if write != "" {
			if err := rewrite(write, nil); err != nil {
				return usageError{err}
			}
		}
		program, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program, to start workers: %w", err)
		}
		opts.Program = program
		opts.Progress = func(text string) { _ = say(a.err, "%s", text) } // nobody needs it
		report, failed := bench.Run(cmd.Context(), opts)
		if failed != nil {
			failed = fmt.Errorf("bench: %w", failed)
		}
		if len(report.Sections) == 0 {
			return failed
		}
		var text bytes.Buffer
		err = printReport(&text, report, *format)
		if err == nil {
			_, err = text.WriteTo(a.out)
		}
		if err == nil && file != "" {
			if err = printJSON(&text, report); err == nil {
				err = os.WriteFile(file, text.Bytes(), 0o644)
			}
		}
		if err != nil {
			return errors.Join(failed, fmt.Errorf("print: %w", err))
		}
		if write != "" && failed == nil {
			return rewrite(write, &report)
		}
		return failed
	}
	return cmd
}

func printReport(w *bytes.Buffer, report bench.Report, as format) error {
	switch as {
	case formatJSON:
		return printJSON(w, report)
	case formatMarkdown:
		return report.Markdown(w)
	}
	for _, s := range report.Sections {
		if err := say(w, "\n%s. %s", s.Letter, s.Title); err != nil {
			return err
		}
		cells := s.Cells()
		for i, title := range cells[0] {
			cells[0][i] = strings.ToUpper(title)
		}
		if err := table(w, cells); err != nil {
			return err
		}
	}
	return nil
}

// rewrite puts the report between the marks in a Markdown file. Without a report, it only sees whether it could.
func rewrite(file string, report *bench.Report) error {
	const begin, end = "<!-- bench -->\n", "<!-- /bench -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--write: %w", err)
	}
	before, rest, ok := bytes.Cut(text, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		return fmt.Errorf("--write: %s has no line <!-- bench --> with a line <!-- /bench --> after it", file)
	}
	if report == nil {
		return nil
	}
	var middle bytes.Buffer
	if err := report.Markdown(&middle); err != nil {
		return err
	}
	if err := os.WriteFile(file, slices.Concat(before, []byte(begin), []byte("\n"), middle.Bytes(), []byte("\n"), []byte(end), after), 0o644); err != nil {
		return fmt.Errorf("--write: %w", err)
	}
	return nil
}
