package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outlane/outlane/e2e/load"
)

// scale changes the number of workers past Helm, and returns when so many are ready and no others are left.
func (r *release) scale(n int) time.Duration {
	r.Helper()
	began := time.Now()
	r.kubectl("scale", "deployment/"+r.fullName(), fmt.Sprintf("--replicas=%d", n))
	r.waitForPods(n)
	return time.Since(began)
}

func (r *release) fullName() string {
	if strings.Contains(r.name, "outlane") {
		return r.name
	}
	return r.name + "-outlane"
}

func (r *release) selector() string {
	return "app.kubernetes.io/component=worker,app.kubernetes.io/instance=" + r.name
}

// pods are the release's workers that have not ended, also those that are about to.
func (r *release) pods() []corev1.Pod {
	r.Helper()
	list, err := suite.client.CoreV1().Pods(r.namespace).List(r.ctx, metav1.ListOptions{LabelSelector: r.selector()})
	require.NoError(r, err)
	return list.Items
}

// waitForPods waits until there are exactly n workers, all ready.
func (r *release) waitForPods(n int) {
	r.Helper()
	r.eventually(fmt.Sprintf("%d workers are ready", n), func() error {
		all, ready := r.pods(), 0
		for i := range all {
			if isReady(&all[i]) {
				ready++
			}
		}
		if len(all) != n || ready != n {
			return fmt.Errorf("%d of %d are ready", ready, len(all))
		}
		return nil
	})
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// leases are the pool's Leases of a role: the holders by name.
func (r *release) leases(role string) (map[string]string, error) {
	leases, err := suite.client.CoordinationV1().Leases(r.namespace).List(r.ctx, metav1.ListOptions{
		LabelSelector: "outlane.dev/instance=" + r.fullName() + ",outlane.dev/role=" + role})
	if err != nil {
		return nil, err
	}
	holders := map[string]string{}
	for i := range leases.Items {
		holders[leases.Items[i].Name] = ""
		if holder := leases.Items[i].Spec.HolderIdentity; holder != nil {
			holders[leases.Items[i].Name] = *holder
		}
	}
	return holders, nil
}

// isWhole returns nil if n workers share all partitions out evenly, and nobody else is a member.
func (r *release) isWhole(n int) error {
	members, err := r.leases("member")
	if err != nil {
		return err
	}
	if len(members) != n {
		return fmt.Errorf("there are %d members", len(members))
	}
	partitions, err := r.leases("partition")
	if err != nil {
		return err
	}
	share := map[string]int{}
	for _, member := range members {
		share[member] = 0
	}
	for name, holder := range partitions {
		if _, ok := share[holder]; !ok {
			return fmt.Errorf("%s is held by %q, who is no member", name, holder)
		}
		share[holder]++
	}
	counts := slices.Sorted(maps.Values(share))
	if len(counts) == 0 || len(partitions) != load.Partitions || counts[len(counts)-1]-counts[0] > 1 {
		return fmt.Errorf("%d partitions are shared out as %v", len(partitions), counts)
	}
	return nil
}

// waitForPool waits until n workers are ready and share all partitions out evenly.
func (r *release) waitForPool(n int) {
	r.Helper()
	r.waitForPods(n)
	r.eventually(fmt.Sprintf("%d workers share the partitions", n), func() error { return r.isWhole(n) })
}

// spread is the middle and the longest of some durations.
func spread(all []time.Duration) string {
	all = slices.Sorted(slices.Values(all))
	return fmt.Sprintf("%s (longest %s)", round(all[len(all)/2]), round(all[len(all)-1]))
}
