// Package node runs a whole Kubernetes cluster of one node on this machine, for the end-to-end suite: the control plane of package
// controlplane, and containerd, the kubelet and kube-proxy, so that pods really run.
//
// What it promises: all of it lives in a network namespace of its own, which has no way out of the machine, in cgroups of its own and in a folder
// under /run; what is left of a run that was killed is taken away by the next. Nothing else on the machine is touched.
//
// What it does not promise: more than one node, DNS, images from registries, or anything for data that somebody needs. It is for root on Linux, with
// Debian's containerd, runc, containernetworking-plugins, iptables, conntrack and iproute2.
//
// A process calls Enter first, which runs it again inside the namespace; there it calls Start.
package node
