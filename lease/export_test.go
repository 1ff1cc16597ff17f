package lease

import coordination "k8s.io/api/coordination/v1"

// HeldBy returns the version of the lease by which the partition is held. It may be called from within Gained only.
func (m *Manager) HeldBy(partition int) string { return m.slots[partition].lease }

// ReadKubernetes reads the records of a pool as a watch does.
func ReadKubernetes(instance string, all []coordination.Lease) ([]Member, []Lease) {
	view := &kubernetesView{names: kubernetesNames{instance: legalInstance(instance)}}
	view.reset(&coordination.LeaseList{Items: all})
	u := view.update()
	return u.Members, u.Leases
}

// PartitionName and MemberName are the names of Leases.
func PartitionName(instance string, p int) string {
	return kubernetesNames{instance: legalInstance(instance)}.partition(p)
}

func MemberName(instance, podUID, id string) string {
	return kubernetesNames{instance: legalInstance(instance), podUID: podUID}.member(id)
}
