package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/config"
)

// sampleValues are three valid values of a field, as config print shows them, different from its default where the field leaves a choice.
func sampleValues(f config.Field) [3]string {
	switch f.Path {
	case "database.url":
		return [3]string{"postgres://one/d", "postgres://two/d", "postgres://three/d"}
	case "http.addr":
		return [3]string{":1", "127.0.0.1:0", "[::1]:9"}
	case "worker.batchBytes":
		return [3]string{"1KiB", "2KiB", "1MiB"}
	case "nats.password", "nats.token":
		return [3]string{"***", "***", "***"}
	}
	switch f.Kind {
	case config.KindNumber:
		return [3]string{"2", "3", "4"}
	case config.KindDuration:
		return [3]string{"2s", "1.5s", "3s"}
	case config.KindBytes:
		return [3]string{"10MiB", "11MiB", "12MB"}
	case config.KindBool:
		return [3]string{"true", "false", "true"}
	case config.KindText, config.KindTexts:
	}
	if f.OneOf != nil {
		return [3]string{f.OneOf[0], f.OneOf[len(f.OneOf)-1], f.OneOf[len(f.OneOf)/2]}
	}
	return [3]string{"one", "two", "three"}
}

// companionsOf are variables that a field needs beside it to be valid.
func companionsOf(path string) []string {
	switch path {
	case "nats.password":
		return []string{"OUTLANE_NATS_USER=u"}
	case "nats.tls.cert":
		return []string{"OUTLANE_NATS_TLS_KEY=k"}
	case "nats.tls.key":
		return []string{"OUTLANE_NATS_TLS_CERT=c"}
	case "lease.namespace", "lease.kubeconfig":
		return []string{"OUTLANE_LEASE_BACKEND=kubernetes"}
	case "lease.podName":
		return []string{"OUTLANE_LEASE_BACKEND=kubernetes", "OUTLANE_LEASE_POD_UID=u"}
	case "lease.podUid":
		return []string{"OUTLANE_LEASE_BACKEND=kubernetes", "OUTLANE_LEASE_POD_NAME=p"}
	case "worker.memory":
		return []string{"OUTLANE_WORKER_BATCH_BYTES=1KiB"}
	}
	return nil
}

func yamlValue(f config.Field, value string) string {
	if f.Kind == config.KindText {
		return fmt.Sprintf("%q", value)
	}
	return value
}

func nest(path, value string) string {
	var b strings.Builder
	parts := strings.Split(path, ".")
	for depth, part := range parts {
		b.WriteString("\n" + strings.Repeat("  ", depth) + part + ":")
	}
	return b.String() + " " + value + "\n"
}

func shown(t *testing.T, cfg *config.Config, path string) string {
	t.Helper()
	for _, s := range cfg.Settings() {
		if s.Path == path {
			return s.Value
		}
	}
	require.Fail(t, "no setting", path)
	return ""
}
