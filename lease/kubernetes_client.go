package lease

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	authorization "k8s.io/api/authorization/v1"
	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
)

// serviceAccountNamespace is where Kubernetes writes a pod's namespace.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// LoadKubernetes finds the API server as Kubernetes tools do: by the kubeconfig file given, else by that of the environment (KUBECONFIG) or
// of the user, else by the service account of the pod that this process runs in. It returns the namespace that goes with it, too. It opens no
// connection.
func LoadKubernetes(kubeconfig string) (client *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	client, err = loaded.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, "", errors.New("find the Kubernetes API server: there is no kubeconfig, and no service account of a pod")
	}
	if err != nil {
		return nil, "", fmt.Errorf("find the Kubernetes API server: %w", err)
	}
	if namespace, _, err = loaded.Namespace(); err != nil {
		return nil, "", fmt.Errorf("find the Kubernetes namespace: %w", err)
	}
	if inPod, err := os.ReadFile(serviceAccountNamespace); err == nil && kubeconfig == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		namespace = strings.TrimSpace(string(inPod))
	}
	return client, namespace, nil
}

// kubernetesClient speaks with the API server about Leases of one namespace, over connections of its own.
type kubernetesClient struct {
	rest      rest.Interface
	params    runtime.ParameterCodec
	namespace string
	dialer    *connrotation.Dialer
	heard     *atomic.Int64 // when something was last received, by since
	began     time.Time
}

// hearingConn notes when something is received.
type hearingConn struct {
	net.Conn
	heard *atomic.Int64
	began time.Time
}

func (c hearingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(int64(time.Since(c.began)))
	}
	return n, err
}

func newKubernetesClient(cfg *rest.Config, namespace string) (*kubernetesClient, error) {
	scheme := runtime.NewScheme()
	meta.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := errors.Join(coordination.AddToScheme(scheme), authorization.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("lease: prepare a Kubernetes client: %w", err)
	}
	c := rest.CopyConfig(cfg)
	c.APIPath, c.GroupVersion = "/apis", &coordination.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c.QPS = -1 // the backend has limits of its own
	c.WarningHandler = rest.NoWarnings{}
	if c.UserAgent == "" {
		c.UserAgent = "outlane"
	}
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	}
	made := &kubernetesClient{params: runtime.NewParameterCodec(scheme), namespace: namespace, heard: &atomic.Int64{}, began: time.Now()}
	made.dialer = connrotation.NewDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return hearingConn{conn, made.heard, made.began}, nil
	})
	c.Dial = made.dialer.DialContext
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("lease: prepare a Kubernetes client: %w", err)
	}
	made.rest = client
	return made, nil
}

// deafAfter is how long a connection is silent on which an answer is overdue before it is taken to be broken.
const deafAfter = 2 * time.Second

// reconnect closes all connections if they seem to be half open, so that what comes next opens new ones. An API server that is merely slow is not
// burdened with that.
func (c *kubernetesClient) reconnect() {
	if time.Since(c.began)-time.Duration(c.heard.Load()) > deafAfter {
		c.dialer.CloseAll()
	}
}

func (c *kubernetesClient) close() { c.dialer.CloseAll() }

func (c *kubernetesClient) get(ctx context.Context, name string) (*coordination.Lease, error) {
	l := &coordination.Lease{}
	err := c.rest.Get().Namespace(c.namespace).Resource("leases").Name(name).Do(ctx).Into(l)
	return l, c.explain("get", err)
}

func (c *kubernetesClient) create(ctx context.Context, l *coordination.Lease) (*coordination.Lease, error) {
	made := &coordination.Lease{}
	err := c.rest.Post().Namespace(c.namespace).Resource("leases").Body(l).Do(ctx).Into(made)
	return made, c.explain("create", err)
}

func (c *kubernetesClient) update(ctx context.Context, l *coordination.Lease) (*coordination.Lease, error) {
	made := &coordination.Lease{}
	err := c.rest.Put().Namespace(c.namespace).Resource("leases").Name(l.Name).Body(l).Do(ctx).Into(made)
	return made, c.explain("update", err)
}

func (c *kubernetesClient) delete(ctx context.Context, name string, only *meta.Preconditions) error {
	err := c.rest.Delete().Namespace(c.namespace).Resource("leases").Name(name).Body(&meta.DeleteOptions{Preconditions: only}).Do(ctx).Error()
	return c.explain("delete", err)
}

// list reads all that the selector finds, as it is now.
func (c *kubernetesClient) list(ctx context.Context, selector string) (*coordination.LeaseList, error) {
	all := &coordination.LeaseList{}
	err := c.rest.Get().Namespace(c.namespace).Resource("leases").VersionedParams(&meta.ListOptions{LabelSelector: selector}, c.params).Do(ctx).Into(all)
	return all, c.explain("list", err)
}

// watch shows what changes after a version.
func (c *kubernetesClient) watch(ctx context.Context, selector, after string) (watch.Interface, error) {
	w, err := c.rest.Get().Namespace(c.namespace).Resource("leases").VersionedParams(&meta.ListOptions{
		LabelSelector: selector, ResourceVersion: after, Watch: true, AllowWatchBookmarks: true,
	}, c.params).Watch(ctx)
	return w, c.explain("watch", err)
}

// explain says what to do about a refusal.
func (c *kubernetesClient) explain(verb string, err error) error {
	if err != nil && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
		return fmt.Errorf("%w; grant the verb %s on leases.coordination.k8s.io in namespace %s", err, verb, c.namespace)
	}
	return err
}

// ForbiddenError says which verbs the API server does not grant on leases of a namespace.
type ForbiddenError struct {
	Verbs     []string
	Namespace string
}

func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("not allowed to %s leases.coordination.k8s.io in namespace %s; grant it with a Role and a RoleBinding",
		strings.Join(e.Verbs, ", "), e.Namespace)
}

// needed are the verbs on leases without which the backend cannot work.
var needed = []string{"get", "list", "watch", "create", "update", "delete"}

// permitted asks whether all that is needed is granted, and returns a *ForbiddenError if not. Where that is not known, it is found out by trying.
func (c *kubernetesClient) permitted(ctx context.Context) error {
	review := &authorization.SelfSubjectRulesReview{Spec: authorization.SelfSubjectRulesReviewSpec{Namespace: c.namespace}}
	err := c.rest.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews").Body(review).Do(ctx).Into(review)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || err == nil && review.Status.Incomplete {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask for permissions: %w", err)
	}
	missing := slices.DeleteFunc(slices.Clone(needed), func(verb string) bool {
		return slices.ContainsFunc(review.Status.ResourceRules, func(r authorization.ResourceRule) bool {
			return among(r.Verbs, verb) && among(r.APIGroups, coordination.GroupName) && among(r.Resources, "leases") && len(r.ResourceNames) == 0
		})
	})
	if len(missing) > 0 {
		return &ForbiddenError{Verbs: missing, Namespace: c.namespace}
	}
	return nil
}

// among says whether a rule's list has an item, or all.
func among(list []string, item string) bool {
	return slices.Contains(list, item) || slices.Contains(list, "*")
}
