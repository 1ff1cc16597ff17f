package node

import "fmt"

const (
	services = "10.96.0.0/16"
	pods     = "10.244.0.0/24"
	nodeName = "node"
)

func (c *Cluster) containerdConfig() string {
	return fmt.Sprintf(`version = 2
root = %q
state = %q
oom_score = 0
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = %q
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = %q
`, c.file("containerd/root"), c.file("containerd/state"), c.socket(), pauseImage, c.file("runc"), c.file("cni"))
}

// networkConfig puts pods on a bridge, from which they reach the node and each other.
func (c *Cluster) networkConfig() string {
	return fmt.Sprintf(`{"cniVersion": "0.4.0", "name": %q, "plugins": [
  {"type": "bridge", "bridge": "pods", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, c.name, c.file("addresses"), pods)
}

// kubeletConfig never evicts pods, whatever else the machine does, and looks at the node more often than usual.
func (c *Cluster) kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: %q
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: %q
oomScoreAdj: 0
podLogsDir: %q
volumePluginDir: %q
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %q}}
authorization: {mode: Webhook}
makeIPTablesUtilChains: false
failSwapOn: false
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%", imagefs.inodesFree: "0%%"}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 2s
syncFrequency: 10s
`, "unix://"+c.socket(), "/"+c.name, c.file("pod-logs"), c.file("plugins"), c.plane.AuthorityFile())
}

// proxyConfig leaves the limits of connection tracking as they are, which are the whole machine's.
func (c *Cluster) proxyConfig() string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection: {kubeconfig: %q}
hostnameOverride: %s
clusterCIDR: %s
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
iptables: {syncPeriod: 30s, minSyncPeriod: 100ms}
`, c.plane.Kubeconfig(proxyUser), nodeName, pods)
}
