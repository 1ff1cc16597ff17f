package lease_test

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordination "k8s.io/api/coordination/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outlane/outlane/internal/controlplane"
	"github.com/outlane/outlane/internal/kubetest"
	"github.com/outlane/outlane/lease"
	"github.com/outlane/outlane/lease/leasetest"
)

// kubernetesPool is a pool in a namespace of a real API server.
type kubernetesPool struct {
	cluster             *kubetest.Cluster
	namespace, instance string
	pod, podUID         string
	user                string
}

func newKubernetesPool(t testing.TB, cluster *kubetest.Cluster) *kubernetesPool {
	t.Helper()
	return &kubernetesPool{cluster: cluster, namespace: cluster.Namespace(t), instance: "orders", user: controlplane.Admin}
}

func (p *kubernetesPool) Backend(t testing.TB) lease.Backend {
	t.Helper()
	return p.backend(t)
}

func (p *kubernetesPool) backend(t testing.TB) *lease.Kubernetes {
	t.Helper()
	b, err := lease.NewKubernetes(lease.KubernetesConfig{
		Client: p.cluster.Client(t, p.user), Namespace: p.namespace, Instance: p.instance, Pod: p.pod, PodUID: p.podUID,
	})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

func (p *kubernetesPool) read(t testing.TB) ([]lease.Member, []lease.Lease) {
	t.Helper()
	seen := slices.DeleteFunc(p.cluster.Leases(t, p.namespace), func(l coordination.Lease) bool {
		return l.Labels["outlane.dev/instance"] != p.instance
	})
	members, leases := lease.ReadKubernetes(p.instance, seen)
	slices.SortFunc(members, func(a, b lease.Member) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(leases, func(a, b lease.Lease) int { return cmp.Compare(a.Partition, b.Partition) })
	return members, leases
}

func (p *kubernetesPool) Members(t testing.TB) []lease.Member {
	members, _ := p.read(t)
	return members
}

func (p *kubernetesPool) Leases(t testing.TB) []lease.Lease {
	_, leases := p.read(t)
	return leases
}

func (p *kubernetesPool) edit(t testing.TB, partition int, edit func(*coordination.Lease)) {
	t.Helper()
	name := lease.PartitionName(p.instance, partition)
	if p.cluster.EditLease(t, p.namespace, name, edit) {
		return
	}
	made := coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{
		"app.kubernetes.io/name": "outlane", "outlane.dev/instance": p.instance,
	}}}
	edit(&made)
	p.cluster.CreateLease(t, p.namespace, made)
}

func (p *kubernetesPool) SetHolder(t testing.TB, partition int, holder string) {
	p.edit(t, partition, func(l *coordination.Lease) { l.Spec.HolderIdentity = &holder })
}

// Disturb leaves nothing of a Lease but the labels that select it, and its holder.
func (p *kubernetesPool) Disturb(t testing.TB, partition int) {
	p.edit(t, partition, func(l *coordination.Lease) {
		delete(l.Labels, "outlane.dev/role")
		l.Labels["outlane.dev/partition"] = strconv.Itoa(partition + 1)
		most, past := int32(math.MaxInt32), meta.NewMicroTime(time.Now().Add(-time.Hour))
		l.Spec = coordination.LeaseSpec{HolderIdentity: l.Spec.HolderIdentity, RenewTime: &past}
		if l.Annotations["odd"] == "" {
			l.Annotations = map[string]string{"odd": "yes"}
			l.Spec.LeaseTransitions = &most
		} else {
			l.Annotations = nil
		}
	})
}

func (p *kubernetesPool) DeleteLease(t testing.TB, partition int) {
	p.cluster.DeleteLease(t, p.namespace, lease.PartitionName(p.instance, partition))
}

func (p *kubernetesPool) SetDuration(t testing.TB, id string, d time.Duration) {
	p.cluster.EditLease(t, p.namespace, lease.MemberName(p.instance, p.podUID, id), func(l *coordination.Lease) {
		l.Spec.LeaseDurationSeconds = nil // the API server takes nothing below a second
		if d > 0 {
			seconds := int32(min(max(d/time.Second, 1), math.MaxInt32))
			l.Spec.LeaseDurationSeconds = &seconds
		}
	})
}

func TestContractOnKubernetes(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, func(t *testing.T) leasetest.Pool { return newKubernetesPool(t, kubetest.Shared(t)) })
}
