# What is for Kubernetes: the chart, its tests, manifests, alerts. Helm and promtool come from modules of their own and are built once.
#
# make chart-test     renders every branch of the chart and checks it, and refuses what makes no sense
# make chart-docs     writes charts/outlane/README.md from values.yaml
# make manifests      prints plain manifests: VALUES=file, NAME=outlane, NAMESPACE=outlane
# make promtool-test  checks the alert rules and runs their tests
# make e2e            runs the end-to-end suite on a cluster of its own, which needs root on Linux: SCENARIO=a,e for some of it, E2E_DIR=folder for what is
#                     kept of a scenario that failed; or on yours: E2E_KUBECONFIG, E2E_IMAGE, E2E_IMAGE_2, E2E_DATABASE_URL, E2E_NATS_URL

.PHONY: chart-test chart-docs manifests promtool-test e2e

TOOLS_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/outlane/tools
PROMTOOL    := $(TOOLS_CACHE)/promtool-$(shell sed -n 's|.*github.com/prometheus/prometheus \(v[^ ]*\).*|\1|p' tools/promtool/go.mod)

chart-test:
	cd charts/test && go vet ./... && go test -count=1 ./...

chart-docs:
	cd charts/test && go run ./cmd/render -readme

manifests:
	@cd charts/test && go run ./cmd/render -values '$(abspath $(or $(VALUES),charts/outlane/ci/minimal.yaml))' -name '$(or $(NAME),outlane)' -namespace '$(or $(NAMESPACE),outlane)'

# The suite is run as a program, not by `go test`, so that it can take everything down at Ctrl-C.
e2e:
	@$(if $(E2E_KUBECONFIG),,./scripts/setup.sh e2e)
	@mkdir -p bin
	@cd e2e && go test -c -o ../bin/e2e.test .
	@cd e2e && ../bin/e2e.test -test.v -test.timeout=60m

# Service discovery is left out: it is most of promtool, and tests of rules need none.
$(PROMTOOL):
	mkdir -p $(TOOLS_CACHE)
	cd tools/promtool && CGO_ENABLED=0 nice -n 19 go build -tags remove_all_sd -ldflags '-s -w' -o $@ github.com/prometheus/prometheus/cmd/promtool

promtool-test: $(PROMTOOL)
	$(PROMTOOL) check rules charts/outlane/files/alerts.yaml
	$(PROMTOOL) test rules charts/alerts_test.yaml
	cd tools/promtool && go vet . && go test -count=1 .
