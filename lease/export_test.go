package lease

// HeldBy returns the version of the lease by which the partition is held. It may be called from within Gained only.
func (m *Manager) HeldBy(partition int) string { return m.slots[partition].lease }
