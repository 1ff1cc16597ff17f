package city_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/city"
)

func options() city.Options {
	return city.Options{Teams: 500, Seed: 1, RollBacks: 0.05, Pauses: 0.02, LongestPause: time.Second}
}

func TestLifeInTheCity(t *testing.T) {
	subjects := map[string]string{}
	for _, s := range city.Streams {
		subjects[s.Name] = strings.TrimSuffix(s.Subject, ">")
	}
	c := city.New(options())
	steps, streams, teams := map[string]int{}, map[string]int{}, map[string]bool{}
	rolledBack, paused := 0, 0
	const n = 8000
	for range n {
		tx := c.Next()
		require.NotEmpty(t, tx.Events)
		require.LessOrEqual(t, len(tx.Events), 5)
		teams[tx.Team] = true
		if tx.RollBack {
			rolledBack++
		}
		if tx.Pause > 0 {
			paused++
			require.LessOrEqual(t, tx.Pause, time.Second)
		}
		for _, e := range tx.Events {
			require.True(t, strings.HasPrefix(e.Topic, subjects[e.Stream]), "%s in %s", e.Topic, e.Stream)
			require.Nil(t, e.Headers)
			var payload struct {
				Team string `json:"team_id"`
				Step int    `json:"step"`
			}
			require.NoError(t, json.Unmarshal(e.Payload, &payload))
			require.Equal(t, tx.Team, payload.Team)
			require.Equal(t, steps[tx.Team+e.Stream]+1, payload.Step)
			steps[tx.Team+e.Stream]++
			streams[e.Stream]++
		}
	}
	require.Len(t, streams, len(city.Streams))
	require.Len(t, teams, 500)
	require.InDelta(t, 0.05*n, rolledBack, 0.02*n)
	require.InDelta(t, 0.02*n, paused, 0.01*n)
}

func TestTheSameSeedIsTheSameCity(t *testing.T) {
	a, b := city.New(options()), city.New(options())
	for range 1000 {
		require.Equal(t, a.Next(), b.Next())
	}
}

func TestPoisonHasAReservedHeader(t *testing.T) {
	tx := city.New(options()).Poison()
	require.Len(t, tx.Events, 1)
	require.False(t, city.Blocking[tx.Events[0].Stream])
	require.Contains(t, string(tx.Events[0].Headers), "Nats-")
}
