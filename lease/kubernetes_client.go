package lease

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
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
	dialer := connrotation.NewDialer(dial)
	c.Dial = dialer.DialContext
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("lease: prepare a Kubernetes client: %w", err)
	}
	return &kubernetesClient{rest: client, params: runtime.NewParameterCodec(scheme), namespace: namespace, dialer: dialer}, nil
}

// reconnect closes all connections, so that what comes next opens new ones.
func (c *kubernetesClient) reconnect() { c.dialer.CloseAll() }

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

// permitted asks whether all that is needed is granted, and returns a *ForbiddenError if not. Where that cannot be asked, it is found out by
// trying.
func (c *kubernetesClient) permitted(ctx context.Context) error {
	var missing []string
	for _, verb := range []string{"get", "list", "watch", "create", "update", "delete"} {
		review := &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorization.ResourceAttributes{
				Namespace: c.namespace, Verb: verb, Group: coordination.GroupName, Resource: "leases",
			},
		}}
		err := c.rest.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").Body(review).Do(ctx).Into(review)
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("ask for permissions: %w", err)
		}
		if !review.Status.Allowed {
			missing = append(missing, verb)
		}
	}
	if len(missing) > 0 {
		return &ForbiddenError{Verbs: missing, Namespace: c.namespace}
	}
	return nil
}
