// Command render writes the chart as plain manifests, or its README: see make manifests and make chart-docs.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	charttest "github.com/outlane/outlane/charts/test"
)

func main() {
	chart := flag.String("chart", "../outlane", "folder of the chart")
	values := flag.String("values", "", "file with values")
	name := flag.String("name", "outlane", "name of the release")
	namespace := flag.String("namespace", "outlane", "its namespace")
	readme := flag.Bool("readme", false, "write the chart's README instead")
	flag.Parse()
	if err := run(*chart, *values, charttest.Release{Name: *name, Namespace: *namespace}, *readme); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(dir, valuesFile string, release charttest.Release, readme bool) error {
	if readme {
		text, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
		if err != nil {
			return err
		}
		out, err := charttest.README(text)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "README.md"), out, 0o644)
	}
	c, err := charttest.Load(dir)
	if err != nil {
		return err
	}
	values := map[string]any{}
	if valuesFile != "" {
		text, err := os.ReadFile(valuesFile)
		if err != nil {
			return err
		}
		if err := yaml.Unmarshal(text, &values); err != nil {
			return fmt.Errorf("read %s: %w", valuesFile, err)
		}
	}
	objects, _, err := charttest.Render(c, release, values)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(charttest.Manifests(objects))
	return err
}
