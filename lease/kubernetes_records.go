package lease

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outlane/outlane/partition"
)

// Labels and annotations of the Leases. The labels select; what a Lease is about, its name says.
const (
	labelName      = "app.kubernetes.io/name"
	labelInstance  = "outlane.dev/instance"
	labelRole      = "outlane.dev/role"
	labelPartition = "outlane.dev/partition"

	roleMember    = "member"
	rolePartition = "partition"

	annotationMember   = "outlane.dev/member"   // its identity, should the holder be edited
	annotationDuration = "outlane.dev/duration" // its exact duration; the spec has whole seconds
	annotationWeights  = "outlane.dev/weights"  // how much work its partitions are
	annotationLeaving  = "outlane.dev/leaving"  // "true" while it hands over
)

const (
	// longestInstance leaves room in a label's 63 characters, and in a name for a partition.
	longestInstance = 50
	// longestName leaves room in a name's 253 characters for all that is put around it.
	longestName = 150
	// hashLength gives 50 bits.
	hashLength = 10
)

// kubernetesNames gives the names of a pool's Leases: INSTANCE.partition-0007 and INSTANCE.member.NAME. An instance that is no DNS label is
// made one, with a dot and a hash behind it, so that no two instances, and no Leases of two, ever have the same name.
type kubernetesNames struct {
	instance string // as legalInstance made it
	podUID   string
}

// legalInstance makes a label's value and the beginning of names from any text.
func legalInstance(text string) string {
	if made := slug(text); made == text && !strings.Contains(text, ".") && len(text) <= longestInstance {
		return text
	}
	made := strings.ReplaceAll(slug(text), ".", "-")
	return strings.TrimRight(made[:min(len(made), longestInstance-hashLength-1)], "-") + "." + hash(text)
}

// legalName makes a part of a name from any text, unique for each.
func legalName(text string) string {
	made := slug(text)
	if made == text && len(text) <= longestName {
		return text
	}
	return strings.TrimRight(made[:min(len(made), longestName)], "-.") + "-" + hash(text)
}

// slug keeps what may be in a DNS subdomain, and begins and ends each of its labels with a letter or a digit.
func slug(text string) string {
	made := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, text)
	labels := strings.Split(made, ".")
	kept := labels[:0]
	for _, l := range labels {
		if l = strings.Trim(l, "-"); l != "" {
			kept = append(kept, l)
		}
	}
	if len(kept) == 0 {
		return "x"
	}
	return strings.Join(kept, ".")
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:hashLength]
}

func (n kubernetesNames) partition(p int) string {
	return fmt.Sprintf("%s.partition-%04d", n.instance, p)
}

// partitionOf is the inverse of partition.
func (n kubernetesNames) partitionOf(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, n.instance+".partition-")
	if !ok {
		return 0, false
	}
	p, err := strconv.Atoi(digits)
	return p, err == nil && p >= 0 && p < partition.MaxPartitions && name == n.partition(p)
}

// member is the name of a member's Lease. In a pod it is the same for each process that is started there under one name, so that a process
// replaces the record of the one before it in a single write.
func (n kubernetesNames) member(id string) string {
	if n.podUID == "" {
		return n.instance + ".member." + legalName(id)
	}
	return n.instance + ".member." + legalName(nameOfID(id)) + "." + hash(n.podUID)
}

func (n kubernetesNames) isMember(name string) bool {
	return strings.HasPrefix(name, n.instance+".member.")
}

// selector selects the Leases of the pool.
func (n kubernetesNames) selector() string {
	return labelName + "=outlane," + labelInstance + "=" + n.instance
}

// ours says whether the selector finds the Lease.
func (n kubernetesNames) ours(l *coordination.Lease) bool {
	return l.Labels[labelName] == "outlane" && l.Labels[labelInstance] == n.instance
}

// successor says whether the Lease of a member with that identity is another's by now: the process's that was started after it in its pod.
func (n kubernetesNames) successor(l *coordination.Lease, id string) bool {
	return n.podUID != "" && n.ours(l) && l.Annotations[annotationMember] != "" && l.Annotations[annotationMember] != id
}

func (n kubernetesNames) labels(role string) map[string]string {
	return map[string]string{labelName: "outlane", labelInstance: n.instance, labelRole: role}
}

func podReference(name, uid string) meta.OwnerReference {
	return meta.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID(uid)}
}

// memberLease is the record of a member that is alive now.
func (k *Kubernetes) memberLease(m Member) *coordination.Lease {
	l := &coordination.Lease{ObjectMeta: meta.ObjectMeta{
		Name: k.names.member(m.ID), Labels: k.names.labels(roleMember),
		Annotations: map[string]string{annotationMember: m.ID, annotationDuration: m.Duration.String()},
	}}
	if m.Leaving {
		l.Annotations[annotationLeaving] = "true"
	}
	if m.Weights != "" {
		l.Annotations[annotationWeights] = m.Weights
	}
	if k.pod.UID != "" {
		l.OwnerReferences = []meta.OwnerReference{k.pod}
	}
	now, seconds := meta.NowMicro(), wholeSeconds(m.Duration)
	l.Spec = coordination.LeaseSpec{HolderIdentity: &m.ID, LeaseDurationSeconds: &seconds, RenewTime: &now}
	return l
}

// wholeSeconds is what a Lease can say of a duration.
func wholeSeconds(d time.Duration) int32 {
	return int32(min(max((d+time.Second-1)/time.Second, 1), math.MaxInt32))
}

// memberOf reads a member's record. Whoever edits it changes the spec, which then holds.
func memberOf(l *coordination.Lease) Member {
	m := Member{ID: l.Annotations[annotationMember], Leaving: l.Annotations[annotationLeaving] == "true",
		Weights: l.Annotations[annotationWeights]}
	if m.ID == "" && l.Spec.HolderIdentity != nil {
		m.ID = *l.Spec.HolderIdentity
	}
	if m.ID == "" {
		m.ID = l.Name // of somebody else's making: it is buried in time
	}
	if l.Spec.LeaseDurationSeconds != nil {
		m.Duration = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
		if exact, err := time.ParseDuration(l.Annotations[annotationDuration]); err == nil && wholeSeconds(exact) == *l.Spec.LeaseDurationSeconds {
			m.Duration = exact
		}
	}
	m.Renewal = renewal{name: l.Name, uid: l.UID, version: l.ResourceVersion}.String()
	return m
}

// renewal tells apart a member's record as it was after each write, and says where it is.
type renewal struct {
	name    string
	uid     types.UID
	version string
}

func (r renewal) String() string { return r.name + "/" + string(r.uid) + "/" + r.version }

func parseRenewal(text string) (renewal, bool) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return renewal{}, false
	}
	return renewal{name: parts[0], uid: types.UID(parts[1]), version: parts[2]}, true
}

// version is a partition's Lease as it was seen, with its count of transitions, so that a write needs no read. The UID is what keeps a write
// from making a Lease that is gone again.
type version struct {
	uid         types.UID
	resource    string
	transitions int32
}

func versionOf(l *coordination.Lease) version {
	v := version{uid: l.UID, resource: l.ResourceVersion}
	if l.Spec.LeaseTransitions != nil {
		v.transitions = *l.Spec.LeaseTransitions
	}
	return v
}

func (v version) String() string { return fmt.Sprintf("%s/%s/%d", v.uid, v.resource, v.transitions) }

func parseVersion(text string) (version, bool) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return version{}, false
	}
	transitions, err := strconv.ParseInt(parts[2], 10, 32)
	return version{uid: types.UID(parts[0]), resource: parts[1], transitions: int32(transitions)}, err == nil
}

// partitionLease is the record of a partition that gets a holder, in place of the one that was seen.
func (k *Kubernetes) partitionLease(p int, holder string, seen version) *coordination.Lease {
	l := &coordination.Lease{ObjectMeta: meta.ObjectMeta{
		Name: k.names.partition(p), Labels: k.names.labels(rolePartition), UID: seen.uid, ResourceVersion: seen.resource,
	}}
	l.Labels[labelPartition] = strconv.Itoa(p)
	now, transitions := meta.NowMicro(), seen.transitions
	if transitions < math.MaxInt32 { // which somebody may have set it to: then it begins again
		transitions++
	} else {
		transitions = 0
	}
	l.Spec = coordination.LeaseSpec{AcquireTime: &now, LeaseTransitions: &transitions}
	if holder != "" {
		l.Spec.HolderIdentity = &holder
	}
	return l
}

// leaseOf reads a partition's record.
func leaseOf(p int, l *coordination.Lease) Lease {
	read := Lease{Partition: p, Version: versionOf(l).String()}
	if l.Spec.HolderIdentity != nil {
		read.Holder = *l.Spec.HolderIdentity
	}
	return read
}

// MemberRecord is a member's record with its times, for people: they are those of the member's clock and the API server's.
type MemberRecord struct {
	Member
	JoinedAt, RenewedAt time.Time
}

// Members reads who is in the pool, by ID.
func (k *Kubernetes) Members(ctx context.Context) ([]MemberRecord, error) {
	all, err := k.client.list(ctx, k.names.selector())
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	var members []MemberRecord
	for i := range all.Items {
		l := &all.Items[i]
		if !k.names.isMember(l.Name) || l.DeletionTimestamp != nil {
			continue
		}
		m := MemberRecord{Member: memberOf(l), JoinedAt: l.CreationTimestamp.Time}
		if l.Spec.RenewTime != nil {
			m.RenewedAt = l.Spec.RenewTime.Time
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b MemberRecord) int { return cmp.Compare(a.ID, b.ID) })
	return members, nil
}
