// Package controlplane builds and runs a private control plane of Kubernetes for tests and for people who try things: etcd and
// kube-apiserver, and the controller manager if asked for. There are no nodes, so that pods are objects that never run.
//
// What it promises: everything listens on 127.0.0.1 only, with certificates and tokens of its own, on a temporary folder. It does not
// outlive the process that started it, however that ends; the folder of one that was killed is removed by the next. The API server and
// etcd can be stopped, frozen and started again on the same ports with the same data.
//
// What it does not promise: durability, or anything else that is meant for data that somebody needs. It is for Linux.
//
// The programs are one binary, built by the go command from the module in e2e/cluster, which takes a quarter of an hour the first time. It
// is kept in the user's cache folder by its version. Helm and KEDA, which the end-to-end suite needs beside it, are built and kept likewise.
package controlplane
