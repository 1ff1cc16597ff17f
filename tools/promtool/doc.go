// Package promtool has no code: its module builds promtool, and its tests hold the dashboard's and the alerts' queries to the metrics that a
// worker exports. `make promtool-test` runs both.
package promtool
