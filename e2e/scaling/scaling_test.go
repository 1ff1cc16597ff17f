package scaling_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/e2e/scaling"
	"github.com/outlane/outlane/internal/controlplane"
	"github.com/outlane/outlane/internal/postgres"
)

const ceiling = 3 * time.Minute

// TestScaling proves, on a control plane without nodes, that KEDA scales from zero, as far as its query says, and back to zero.
func TestScaling(t *testing.T) {
	programs, err := controlplane.BuildKEDA(context.Background(), os.Stderr)
	require.NoError(t, err)
	program, err := controlplane.Build(context.Background(), os.Stderr)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	plane, err := controlplane.Start(ctx, controlplane.Options{Program: program, Controllers: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plane.Close()) })
	began := time.Now()
	k, err := scaling.Start(ctx, plane, programs)
	require.NoError(t, err)
	closed := false
	t.Cleanup(func() {
		if !closed {
			require.NoError(t, k.Close())
		}
	})
	t.Log("KEDA is ready after", time.Since(began))

	server, err := postgres.Start(ctx, postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	require.NoError(t, err)
	set := func(n int) {
		_, err := conn.Exec(ctx, fmt.Sprintf("CREATE OR REPLACE FUNCTION wanted() RETURNS int LANGUAGE sql AS 'SELECT %d'", n))
		require.NoError(t, err)
	}
	set(0)

	create := func(path, object string) {
		_, _, err := plane.Call(ctx, http.MethodPost, path, []byte(object))
		require.NoError(t, err)
	}
	create("/apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"app"},"spec":{"replicas":0,"selector":{"matchLabels":{"app":"app"}},
		"template":{"metadata":{"labels":{"app":"app"}},"spec":{"containers":[{"name":"app","image":"app"}]}}}}`)
	create("/api/v1/namespaces/default/secrets", fmt.Sprintf(`{"metadata":{"name":"app"},"stringData":{"url":%q}}`, server.URL("postgres")))
	create("/apis/keda.sh/v1alpha1/namespaces/default/triggerauthentications",
		`{"apiVersion":"keda.sh/v1alpha1","kind":"TriggerAuthentication","metadata":{"name":"app"},"spec":{"secretTargetRef":[{"parameter":"connection","name":"app","key":"url"}]}}`)
	create("/apis/keda.sh/v1alpha1/namespaces/default/scaledobjects", `{"apiVersion":"keda.sh/v1alpha1","kind":"ScaledObject","metadata":{"name":"app"},
		"spec":{"scaleTargetRef":{"name":"app"},"minReplicaCount":0,"maxReplicaCount":5,"pollingInterval":1,"cooldownPeriod":1,
		"advanced":{"horizontalPodAutoscalerConfig":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":1}}}},
		"triggers":[{"type":"postgresql","authenticationRef":{"name":"app"},"metadata":{"query":"SELECT wanted()","targetQueryValue":"1"}}]}}`)

	for _, n := range []int{1, 4, 9, 0} {
		set(n)
		began := time.Now()
		require.Eventually(t, func() bool {
			answer, _, err := plane.Call(ctx, http.MethodGet, "/apis/apps/v1/namespaces/default/deployments/app", nil)
			require.NoError(t, err)
			var app struct{ Spec struct{ Replicas int } }
			require.NoError(t, json.Unmarshal(answer, &app))
			return app.Spec.Replicas == min(n, 5)
		}, ceiling, 100*time.Millisecond)
		t.Logf("%d wanted: followed after %s", n, time.Since(began))
	}

	_, _, err = plane.Call(ctx, http.MethodDelete, "/apis/keda.sh/v1alpha1/namespaces/default/scaledobjects/app", nil)
	require.NoError(t, err)
	closed = true
	require.NoError(t, k.Close())
	create("/api/v1/namespaces", `{"metadata":{"name":"short"}}`)
	_, _, err = plane.Call(ctx, http.MethodDelete, "/api/v1/namespaces/short", nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, status, _ := plane.Call(ctx, http.MethodGet, "/api/v1/namespaces/short", nil)
		return status == http.StatusNotFound
	}, ceiling, 100*time.Millisecond, "a namespace cannot be removed after KEDA has gone")
}
