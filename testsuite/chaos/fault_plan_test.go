package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

func TestAPlanFollowsFromItsSeed(t *testing.T) {
	t.Parallel()
	roles := []processes.Role{processes.Gateway, processes.Sampler, processes.Temporal}
	list := func(seed uint64) []fault {
		p := newFaultPlan(seed, 2*time.Second, roles)
		var out []fault
		for range 70 {
			out = append(out, p.next())
		}
		return out
	}
	require.Equal(t, list(1), list(1))
	require.NotEqual(t, list(1), list(2))

	kills, hangs := map[processes.Role]int{}, 0
	for _, b := range list(1) {
		require.GreaterOrEqual(t, b.after, time.Second)
		require.Less(t, b.after, 3*time.Second)
		if b.hang == 0 {
			kills[b.role]++
			continue
		}
		hangs++
		require.GreaterOrEqual(t, b.hang, shortestHang)
		require.Less(t, b.hang, longestHang)
	}
	require.Equal(t, 10, hangs)
	require.Equal(t, map[processes.Role]int{processes.Gateway: 20, processes.Sampler: 20, processes.Temporal: 20}, kills, "nobody is spared")
}

func TestTheCommandLineIsChecked(t *testing.T) {
	t.Parallel()
	for _, bad := range [][]string{
		{"-kills", "-1"}, {"-every", "0s"}, {"-store", "file"}, {"-journal", "maybe"}, {"-roles", "gateway,nobody"}, {"more"},
		{"-scenarios", "plain,none"}, {"-with", "page,nobody"},
		{"-store", "sqlite", "-roles", "postgres"},
	} {
		_, err := parse(bad, t.Output())
		require.Error(t, err, "%v", bad)
	}
	o, err := parse([]string{"-store", "sqlite", "-scenarios", "critic,plain,lora"}, t.Output())
	require.NoError(t, err)
	require.Equal(t, []string{"critic", "plain", "lora"}, []string{o.scenarios[0].name, o.scenarios[1].name, o.scenarios[2].name})
	victims, err := o.victims()
	require.NoError(t, err)
	require.Equal(t, []processes.Role{processes.Gateway, processes.Sampler, processes.CPU1, processes.CPU2, processes.GPU, processes.Temporal}, victims)
	o, err = parse([]string{"-with", "pruner,page"}, t.Output())
	require.NoError(t, err)
	victims, err = o.victims()
	require.NoError(t, err)
	require.Equal(t, []processes.Role{processes.Postgres, processes.Page, processes.Pruner}, victims[len(victims)-3:])
}
