package charttest

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

const readmeHead = `# Chart outlane

<!-- Generated from values.yaml. Change it there, then run: make chart-docs -->

Installs a pool of Outlane workers. [docs/install.md](../../docs/install.md) leads through it; [ci/](ci) has complete examples, each of which is tested.

    helm install outlane charts/outlane --namespace outbox --create-namespace \
      --set database.host=postgres --set database.name=shop --set database.user=outlane --set database.passwordSecret.name=outlane-postgres \
      --set nats.url=nats://nats:4222

Values that make no sense are refused, by name, before anything is installed: unknown keys, wrong types and ranges by values.schema.json, contradictions by
the templates. A **database** is everywhere the same: ` + "`url`, or `urlSecret`, or `host`, `port`, `name`, `user`, `params` with `password` or `passwordSecret`" + `.

| value | what it means | default |
|---|---|---|
`

// README is the chart's README.md, from the comments of values.yaml.
func README(values []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(values, &doc); err != nil {
		return nil, fmt.Errorf("read the values: %w", err)
	}
	var out bytes.Buffer
	out.WriteString(readmeHead)
	if err := describe(&out, doc.Content[0], ""); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// describe writes a row for each value that has no values in it, or a comment of its own.
func describe(out *bytes.Buffer, node *yaml.Node, prefix string) error {
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := prefix + key.Value
		comment := strings.ReplaceAll(strings.ReplaceAll(strings.TrimPrefix(strings.ReplaceAll(key.HeadComment, "\n# ", " "), "# "), "\n#", " "), "|", "\\|")
		nested := value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Style&yaml.FlowStyle == 0
		if !nested || comment != "" {
			text := ""
			if !nested {
				var err error
				if text, err = flow(value); err != nil {
					return err
				}
			}
			fmt.Fprintf(out, "| `%s` | %s | %s |\n", name, comment, text)
		}
		if nested {
			if err := describe(out, value, name+"."); err != nil {
				return err
			}
		}
	}
	return nil
}

func flow(value *yaml.Node) (string, error) {
	copied := *value
	copied.HeadComment, copied.LineComment, copied.FootComment = "", "", ""
	if copied.Kind != yaml.ScalarNode {
		copied.Style = yaml.FlowStyle
	}
	text, err := yaml.Marshal(&copied)
	if err != nil {
		return "", fmt.Errorf("write a default: %w", err)
	}
	return "`" + strings.ReplaceAll(strings.TrimSpace(string(text)), "|", "\\|") + "`", nil
}
