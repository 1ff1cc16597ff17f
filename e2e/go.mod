module github.com/outlane/outlane/e2e

go 1.26.0

replace github.com/outlane/outlane => ../

require github.com/outlane/outlane v0.0.0-00010101000000-000000000000
