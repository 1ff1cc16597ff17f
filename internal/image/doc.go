// Package image makes Outlane's container image, without a container engine and without a registry: an OCI image layout in one tar file, with a
// manifest for each platform, from nothing but the Go toolchain.
//
// The image has the static program, certificates of public authorities, time zones, a user that is not root, a world-writable /tmp, and the list of the program's
// modules (an SPDX document). It has no shell.
//
// The same source, version, creation time and toolchain give the same bytes, on any machine: nothing of the machine goes in. Only the developer's
// `make image` and tests use this package.
package image
