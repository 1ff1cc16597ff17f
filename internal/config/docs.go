package config

import (
	"fmt"
	"strings"
)

// Markdown is docs/configuration.md: all of the table, and the rules.
func Markdown() string {
	var b strings.Builder
	b.WriteString(docHead)
	for _, section := range sections() {
		fmt.Fprintf(&b, "\n## %s\n\n| field | what it means | default | variable, flag |\n|---|---|---|---|\n", section.title)
		for _, f := range section.fields {
			flags := "`--" + f.Flag + "`"
			if f.Short != "" {
				flags = "`--" + f.Short + "`, " + flags
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` %s |\n", f.Path, f.describe(), f.showDefault(), f.Env, flags)
		}
	}
	for _, list := range listNames {
		fmt.Fprintf(&b, "\n## `%s`\n\n%s\n\n| field | what it means | default |\n|---|---|---|\n", list, configTag(list, "help"))
		for _, f := range itemTables[list] {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Name, f.describe(), f.showDefault())
		}
	}
	return b.String()
}

const docHead = `# Configuration

<!-- Generated from internal/config. Change it there, then run: go generate ./internal/config -->

Everything has a default but the two addresses. So this is a complete configuration of a worker whose streams exist already:

    export OUTLANE_DATABASE_URL=postgres://outlane@db.internal/app
    export OUTLANE_NATS_URL=nats://nats.internal:4222
    outlane worker

What is more goes into one YAML file, named by ` + "`--config` or `OUTLANE_CONFIG`" + `:

` + "```yaml\n" + Example + "```" + `

- Each single value can also be given by a variable or a flag. A flag is stronger than a variable, a variable than the file, the file than the
  default. A variable that is set but empty counts as not set. ` + "`routes` and `streams`" + ` are in the file only.
- Nothing is ignored. An unknown field, a field given twice, a value of the wrong type or out of range, and an unknown variable that begins
  with ` + "`OUTLANE_`" + ` are errors with their place and their mend, all reported together, and the exit code is 2. Only the variables that
  Kubernetes sets for a service named outlane (such as ` + "`OUTLANE_SERVICE_HOST`" + `) are passed over.
- A duration has a unit: ` + "`250ms`, `10s`, `2m`, `1h30m`" + `. A size is a whole number with a unit: ` + "`4MiB`, `500kB`" + `; without one it is bytes.
- A secret can come from a file: ` + "`urlFile`, `passwordFile`, `tokenFile`" + `. A line end after the secret does not count. The secret and its file are
  one setting in two forms: the stronger place wins, and both in the same place are an error. What a flag says, everybody on the host can read in
  the list of processes: secrets belong into a file or a variable.
- ` + "`outlane config print`" + ` shows every value in force and where it came from, with secrets masked. ` + "`-o yaml`" + ` writes it as a file.
`

// Example is the file that the documentation shows.
const Example = `partitionKeyField: team_id
worker: {batchEvents: 250, batchBytes: 4MiB, pollInterval: 3ms}
lease: {backend: postgres, duration: 10s}
routes:
  - {topics: ["payout.>"], stream: STREAM_PAYOUT, onDeadLetter: block, maxAttempts: 5, order: commit}
  - {topics: ["agent.run.>"], stream: STREAM_AGENT_RUN}
streams:
  - {name: STREAM_PAYOUT, subjects: ["payout.>"], replicas: 3, storage: file, duplicateWindow: 2m}
`

// HelpText lists every flag and variable, for the command's help.
func HelpText() string {
	var b strings.Builder
	b.WriteString("Each value of the configuration can be set in the file, by a variable, or by a flag; a flag is strongest.\n")
	for _, section := range sections() {
		fmt.Fprintf(&b, "\n%s\n", strings.ReplaceAll(section.title, "`", ""))
		for _, f := range section.fields {
			fmt.Fprintf(&b, "  --%-26s %s\n", f.Flag, f.Env)
			fmt.Fprintf(&b, "      %s", f.summary())
			if f.Default != "" {
				fmt.Fprintf(&b, " (default %s)", f.Default)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

type docSection struct {
	title  string
	fields []Field
}

// sections groups the table by the first part of the path.
func sections() []docSection {
	var all []docSection
	for _, f := range fieldTable {
		title := "General"
		if section, _, ok := strings.Cut(f.Path, "."); ok {
			title = "`" + section + "`"
		}
		if len(all) == 0 || all[len(all)-1].title != title {
			all = append(all, docSection{title: title})
		}
		last := &all[len(all)-1]
		last.fields = append(last.fields, f)
	}
	return all
}

func (f Field) describe() string {
	text := strings.ReplaceAll(f.Help, "|", "\\|")
	switch {
	case f.OneOf != nil:
		text += " One of `" + strings.Join(f.OneOf, "`, `") + "`."
	case f.Min != "" && f.Max != "":
		text += fmt.Sprintf(" %s, %s to %s.", strings.ToUpper(string(f.Kind[:1]))+string(f.Kind[1:]), f.Min, f.Max)
	case f.Kind != KindText:
		text += " " + strings.ToUpper(string(f.Kind[:1])) + string(f.Kind[1:]) + "."
	}
	if f.file {
		text += " A secret."
	}
	return text
}

func (f Field) showDefault() string {
	switch {
	case f.Required:
		return "required"
	case f.Default == "" || f.Env == "" && (f.Default == "0" || f.Default == "0s" || f.Default == "0B"):
		return ""
	}
	return "`" + f.Default + "`"
}
