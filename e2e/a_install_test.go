package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestA goes through the life of a release, with events all the time: none may be lost, doubled or out of order, whatever is done.
func TestA(t *testing.T) {
	s := begin(t, "a", "install → flow → upgrade to another image → rollback → uninstall")
	r := s.newRelease("outlane")
	r.set("replicas", 3)
	r.set("test.topic", s.site.Topic)
	s.measured("install\t%s", round(r.apply()))
	r.waitForPods(3)
	r.requireImage(suite.Refs[0])

	flow := s.site.Steady(s.ctx, 300)
	began := time.Now()
	s.helm("test", r.name)
	s.measured("helm test\t%s", round(time.Since(began)))
	s.around("while nothing happens", began)

	_, tag, _ := cutLast(suite.Refs[1], ":")
	r.set("image.tag", tag)
	began = time.Now()
	took := r.apply()
	r.waitForPods(3)
	r.requireImage(suite.Refs[1])
	s.around(fmt.Sprintf("helm upgrade, %s", round(took)), began)

	began = time.Now()
	s.helm("rollback", r.name, "--wait", "--timeout", ceiling.String())
	took = time.Since(began)
	r.waitForPods(3)
	r.requireImage(suite.Refs[0])
	s.around(fmt.Sprintf("helm rollback, %s", round(took)), began)

	s.stopAndCheck(flow)
	r.requireUninstall()
}

// requireImage requires that all workers run an image.
func (r *release) requireImage(ref string) {
	r.Helper()
	for _, pod := range r.pods() {
		require.Equal(r, ref, pod.Spec.Containers[0].Image)
		_, version, _ := cutLast(ref, ":")
		require.Contains(r, r.kubectl("exec", pod.Name, "--", "/usr/bin/outlane", "version"), version)
	}
}

// requireUninstall uninstalls the release, and requires that nothing of it stays but what the documentation says.
func (r *release) requireUninstall() {
	r.Helper()
	began := time.Now()
	r.helm("uninstall", r.name, "--wait", "--timeout", ceiling.String())
	r.waitForPods(0)
	r.measured("helm uninstall\t%s", round(time.Since(began)))
	kinds := r.kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name")
	names := slices.DeleteFunc(strings.Fields(kinds), func(kind string) bool {
		return strings.HasPrefix(kind, "events") || strings.HasSuffix(kind, ".metrics.k8s.io")
	})
	left := r.kubectl("get", strings.Join(names, ","), "--selector=app.kubernetes.io/instance="+r.name, "--output=name")
	require.Equal(r, "pod/"+r.fullName()+"-test", left, "only the pod of the test may be left")
	leases := "outlane.dev/instance=" + r.fullName()
	require.NotEmpty(r, r.kubectl("get", "leases", "--selector="+leases, "--output=name"))
	r.kubectl("delete", "leases", "--selector="+leases)
	require.Empty(r, r.kubectl("get", "leases", "--selector="+leases, "--output=name"))
}
