// Package e2e runs Outlane as its users do, by Helm on a real Kubernetes with real databases and brokers, and breaks things: see `make e2e`.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/outlane/outlane/e2e/load"
	"github.com/outlane/outlane/e2e/node"
	"github.com/outlane/outlane/internal/child"
	"github.com/outlane/outlane/internal/controlplane"
	"github.com/outlane/outlane/internal/natsserver"
)

// made is what was built before the namespace was entered.
type made struct {
	Kubernetes, Helm string
	KEDA             controlplane.KEDA
	Images           []string  // files
	Refs             [2]string // of the two images, as pods name them
}

// suite is what all scenarios share.
var suite struct {
	made
	cluster    *node.Cluster // nil on an existing cluster
	kubeconfig string
	client     kubernetes.Interface
	servers    *load.Servers
	evidence   string // folder
	table      table
}

const (
	madeEnv = "OUTLANE_E2E_MADE"
	// startTimeout is for the cluster and the servers, on a loaded machine.
	startTimeout = 5 * time.Minute
	imageName    = "docker.io/outlane/outlane"
	// guardScript removes the folder of this process when that is gone.
	guardScript = `trap '' INT TERM HUP; read -r _; rm -rf "$1"`
)

var letters = []string{"a", "b", "c", "d", "e", "f"}

func TestMain(m *testing.M) {
	natsserver.ServeChild()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, m)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	wanted, err := scenarios(os.Getenv("SCENARIO"), os.Getenv("E2E_KUBECONFIG") != "")
	if err != nil {
		return 0, err
	}
	if err := flag.Set("test.run", "^Test["+strings.ToUpper(strings.Join(wanted, ""))+"]"); err != nil {
		return 0, fmt.Errorf("choose scenarios: %w", err)
	}
	if node.Inside() {
		if err := json.Unmarshal([]byte(os.Getenv(madeEnv)), &suite.made); err != nil {
			return 0, fmt.Errorf("read what was built: %w", err)
		}
		return runAll(ctx, m)
	}
	dir, err := os.MkdirTemp("", "outlane-e2e-build-")
	if err != nil {
		return 0, fmt.Errorf("make a folder: %w", err)
	}
	guard, err := child.StartGuard(guardScript, dir)
	if err != nil {
		return 0, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, guard.Close()) }()
	if err := build(ctx, dir, wanted); err != nil {
		return 0, err
	}
	if os.Getenv("E2E_KUBECONFIG") != "" {
		return runAll(ctx, m)
	}
	if os.Geteuid() != 0 || runtime.GOOS != "linux" {
		return 0, errors.New("run a node: only root on Linux can; E2E_KUBECONFIG names an existing cluster to use instead")
	}
	text, err := json.Marshal(suite.made)
	if err != nil {
		return 0, fmt.Errorf("say what was built: %w", err)
	}
	name := os.Getenv("E2E_NAME")
	if name == "" {
		name = "outlane-e2e"
	}
	return node.Enter(ctx, name, madeEnv+"="+string(text))
}

// scenarios are those that were asked for, by letters with commas, or all that are possible.
func scenarios(asked string, existing bool) ([]string, error) {
	needNode := []string{"d"}
	if asked == "" {
		if !existing {
			return letters, nil
		}
		fmt.Println("scenario d is not run: it stops the API server, which needs a cluster that the suite made itself")
		return slices.DeleteFunc(slices.Clone(letters), func(s string) bool { return slices.Contains(needNode, s) }), nil
	}
	var wanted []string
	for _, s := range regexp.MustCompile(`[\s,]+`).Split(strings.ToLower(strings.Trim(asked, ", ")), -1) {
		if !slices.Contains(letters, s) {
			return nil, fmt.Errorf("choose scenarios: SCENARIO is %q, where it may have %s", asked, strings.Join(letters, ","))
		}
		if existing && slices.Contains(needNode, s) {
			return nil, fmt.Errorf("choose scenarios: %s stops the API server, which needs a cluster that the suite made itself, without E2E_KUBECONFIG", s)
		}
		wanted = append(wanted, s)
	}
	return wanted, nil
}

// build makes what needs the network or the source.
func build(ctx context.Context, dir string, wanted []string) (err error) {
	if suite.Kubernetes, err = controlplane.Build(ctx, os.Stderr); err != nil {
		return err
	}
	if suite.Helm, err = controlplane.BuildHelm(ctx, os.Stderr); err != nil {
		return err
	}
	if os.Getenv("E2E_KUBECONFIG") != "" {
		suite.Refs = [2]string{os.Getenv("E2E_IMAGE"), os.Getenv("E2E_IMAGE_2")}
		for _, name := range []string{"E2E_IMAGE", "E2E_IMAGE_2", "E2E_DATABASE_URL", "E2E_NATS_URL"} {
			if os.Getenv(name) == "" {
				return fmt.Errorf("use an existing cluster: %s must be set, too", name)
			}
		}
		return nil
	}
	if slices.Contains(wanted, "e") {
		if suite.KEDA, err = controlplane.BuildKEDA(ctx, os.Stderr); err != nil {
			return err
		}
	}
	pause := filepath.Join(dir, "pause.tar")
	if err := node.BuildPause(ctx, pause); err != nil {
		return err
	}
	suite.Images = []string{pause}
	for i, version := range []string{"v0.0.1", "v0.0.2"} {
		file := filepath.Join(dir, version+".tar")
		cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "-C", "..", "image", "VERSION="+version, "IMAGE="+imageName, "PLATFORMS="+runtime.GOARCH, "OUT="+file)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build the image: %w: %s", err, out)
		}
		suite.Images = append(suite.Images, file)
		suite.Refs[i] = imageName + ":" + version
	}
	return nil
}

// runAll starts what the scenarios need, runs them, and prints the table.
func runAll(ctx context.Context, m *testing.M) (code int, err error) {
	began := time.Now()
	if suite.evidence = os.Getenv("E2E_DIR"); suite.evidence == "" {
		suite.evidence = filepath.Join(os.TempDir(), "outlane-e2e")
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	defer func() { err = errors.Join(err, stopAll()) }()
	if err := startAll(starting); err != nil {
		return 0, err
	}
	suite.table.started = time.Since(began)
	ended := make(chan int, 1)
	go func() { ended <- m.Run() }()
	select {
	case code = <-ended:
	case <-ctx.Done():
		return 0, fmt.Errorf("run the scenarios: %w", ctx.Err())
	}
	fmt.Print(suite.table.text())
	return code, nil
}

func startAll(ctx context.Context) (err error) {
	suite.kubeconfig = os.Getenv("E2E_KUBECONFIG")
	if suite.kubeconfig == "" {
		if suite.cluster, err = node.Start(ctx, node.Options{Program: suite.Kubernetes, Images: suite.Images}); err != nil {
			return err
		}
		suite.kubeconfig = suite.cluster.Kubeconfig()
		suite.servers, err = load.Start(ctx, node.Address)
	} else {
		suite.servers, err = load.Use(ctx, os.Getenv("E2E_DATABASE_URL"), os.Getenv("E2E_NATS_URL"))
	}
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", suite.kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 100, 200
	if suite.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make a client of the cluster: %w", err)
	}
	return nil
}

func stopAll() (err error) {
	if suite.servers != nil {
		err = suite.servers.Close()
	}
	if suite.cluster != nil {
		err = errors.Join(err, suite.cluster.Close())
	}
	return err
}
