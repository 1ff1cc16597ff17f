package lease_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordination "k8s.io/api/coordination/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/outlane/outlane/internal/kubetest"
	"github.com/outlane/outlane/lease"
	"github.com/outlane/outlane/lease/leasetest"
	"github.com/outlane/outlane/partition"
)

// Names of releases that are legal, long, odd, and made to be taken for one another.
var instances = []string{
	"a", "orders", "orders-1", "orders.1", "Orders", "ORDERS", "orders-", "-orders", "orders.member", "orders.member.x", "orders-partition-0001", "ünïcode", " ",
	"..", "_", strings.Repeat("x", 50), strings.Repeat("x", 51), strings.Repeat("x", 300), strings.Repeat("x", 299) + "y", strings.Repeat("-", 80),
}

func TestNamesAreLegalAndUnique(t *testing.T) {
	t.Parallel()
	ids := []string{"", "a", "A", "a.b", "a-b", "a_b", "a b", "é", ".", strings.Repeat("z", 200), strings.Repeat("z", 201), "orders-5c9d8f7b6d-x2x4x-abcdefghij"}
	seen := map[string]string{}
	add := func(name, what string) {
		require.Empty(t, validation.IsDNS1123Subdomain(name), what)
		require.Empty(t, seen[name], "%s has the name of %s: %s", what, seen[name], name)
		seen[name] = what
	}
	for _, instance := range instances {
		for p := range partition.MaxPartitions {
			add(lease.PartitionName(instance, p), fmt.Sprintf("partition %d of %q", p, instance))
		}
		for _, id := range ids {
			add(lease.MemberName(instance, "", id), fmt.Sprintf("member %q of %q", id, instance))
			require.Equal(t, lease.MemberName(instance, "uid", lease.NewID("w")), lease.MemberName(instance, "uid", lease.NewID("w")))
			require.NotEqual(t, lease.MemberName(instance, "uid", id), lease.MemberName(instance, "other", id))
			require.Empty(t, validation.IsDNS1123Subdomain(lease.MemberName(instance, "uid", id)))
		}
	}
}

func TestReleasesInOneNamespaceDoNotMeet(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Shared(t)
	first := newKubernetesPool(t, cluster)
	second := *first
	second.instance = "orders-2"
	one, two := leasetest.Start(t, first, "w", duration), leasetest.Start(t, &second, "w", duration)
	settle(t, first, one)
	settle(t, &second, two)
	for _, w := range []*leasetest.Worker{one, two} {
		require.Len(t, w.Status().Members, 1)
	}
}

func TestOddLeasesAreTakenOverOrLeftAlone(t *testing.T) {
	t.Parallel()
	pool := newKubernetesPool(t, kubetest.Shared(t))
	labels := func() map[string]string {
		return map[string]string{"app.kubernetes.io/name": "outlane", "outlane.dev/instance": pool.instance}
	}
	make := func(name string, labels map[string]string, spec coordination.LeaseSpec) {
		pool.cluster.CreateLease(t, pool.namespace, coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: name, Labels: labels}, Spec: spec})
	}
	nobody, empty, odd := "nobody", "", int32(0)
	make(lease.PartitionName(pool.instance, 0), nil, coordination.LeaseSpec{})                            // no labels, no spec
	make(lease.PartitionName(pool.instance, 1), nil, coordination.LeaseSpec{HolderIdentity: &nobody})     // somebody else's
	make(lease.PartitionName(pool.instance, 2), labels(), coordination.LeaseSpec{})                       // no spec
	make(lease.PartitionName(pool.instance, 3), labels(), coordination.LeaseSpec{HolderIdentity: &empty}) // empty holder
	make(lease.PartitionName(pool.instance, 4), labels(), coordination.LeaseSpec{LeaseTransitions: &odd}) // a count, no holder
	make(lease.PartitionName(pool.instance, 4000), labels(), coordination.LeaseSpec{HolderIdentity: &nobody})
	make(pool.instance+".partition-5", labels(), coordination.LeaseSpec{})
	make("something-else", labels(), coordination.LeaseSpec{HolderIdentity: &nobody})
	make("no-labels", nil, coordination.LeaseSpec{})
	make(pool.instance+".member.stranger", labels(), coordination.LeaseSpec{}) // buried in time

	a, b := leasetest.Start(t, pool, "a", duration), leasetest.Start(t, pool, "b", duration)
	settled := func(why string) {
		t.Helper()
		require.Eventually(t, func() bool {
			members, leases := pool.read(t)
			count := 0
			for _, l := range leases {
				if l.Partition < leasetest.Partitions && (l.Holder == a.ID() || l.Holder == b.ID()) {
					count++
				}
			}
			return count == leasetest.Partitions && len(members) == 2 && len(a.Has()) == leasetest.Partitions/2 && len(b.Has()) == leasetest.Partitions/2
		}, ceiling, 10*time.Millisecond, why)
	}
	settled("with what was there before")

	name := lease.PartitionName(pool.instance, 7)
	edit := func(why string, name string, edit func(*coordination.Lease)) {
		t.Helper()
		require.True(t, pool.cluster.EditLease(t, pool.namespace, name, edit))
		settled(why)
	}
	edit("labels removed", name, func(l *coordination.Lease) { l.Labels = nil })
	edit("everything removed", name, func(l *coordination.Lease) { l.Labels, l.Spec = nil, coordination.LeaseSpec{} })
	edit("another pool's label", name, func(l *coordination.Lease) { l.Labels["outlane.dev/instance"] = "other" })
	edit("the other's holder", name, func(l *coordination.Lease) {
		other := a.ID()
		if *l.Spec.HolderIdentity == other {
			other = b.ID()
		}
		l.Spec.HolderIdentity = &other
	})
	member := lease.MemberName(pool.instance, "", a.ID())
	edit("a member without spec", member, func(l *coordination.Lease) { l.Spec = coordination.LeaseSpec{} })
	edit("a member without labels", member, func(l *coordination.Lease) { l.Labels = nil })
	edit("a member without annotations", member, func(l *coordination.Lease) { l.Annotations = nil })
	edit("a member with another holder", member, func(l *coordination.Lease) { l.Spec.HolderIdentity = &nobody })
	edit("a member that is to be deleted and cannot", member, func(l *coordination.Lease) { l.Finalizers = []string{"outlane.dev/test"} })
	pool.cluster.DeleteLease(t, pool.namespace, member)
	settled("a member that was deleted")
	copied := pool.cluster.Leases(t, pool.namespace)
	for _, l := range copied {
		if l.Name == member {
			make(pool.instance+".member.0-copy", l.Labels, l.Spec)
		}
	}
	settled("a copied member")
}
