package cache_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/page/cache"
)

// maker makes values when the test tells it to.
type maker struct {
	cache.Background[int]
	work sync.WaitGroup
	next chan int // what is made
}

func newMaker() *maker {
	m := &maker{next: make(chan int)}
	m.Most, m.Done = 2, m.work.Done
	m.Begin = func() bool {
		m.work.Add(1)
		return true
	}
	return m
}

func (m *maker) of(key, state string, maxWait time.Duration) cache.Answer[int] {
	return m.Of(context.Background(), key, state, false, maxWait, func() (int, error) {
		v := <-m.next
		if v < 0 {
			return 0, errors.New("negative")
		}
		return v, nil
	})
}

func TestTheLastValueHasToDoUntilTheNextIsMade(t *testing.T) {
	t.Parallel()
	m := newMaker()
	require.Equal(t, cache.Answer[int]{Making: true}, m.of("a", "one", 0), "nobody waits longer than they like")
	m.next <- 7
	m.work.Wait()
	require.Equal(t, cache.Answer[int]{Value: 7, Known: true}, m.of("a", "one", time.Hour))
	require.Equal(t, cache.Answer[int]{Value: 7, Known: true, Making: true}, m.of("a", "two", 0))
	m.next <- 8
	m.work.Wait()
	require.Equal(t, cache.Answer[int]{Value: 8, Known: true}, m.of("a", "two", time.Hour))
}

func TestAnErrorIsTriedAgain(t *testing.T) {
	t.Parallel()
	m := newMaker()
	m.of("a", "one", 0)
	m.next <- -1
	m.work.Wait()
	answer := m.of("a", "one", 0)
	require.Error(t, answer.Err)
	require.True(t, answer.Making)
	m.next <- 9
	m.work.Wait()
	require.Equal(t, cache.Answer[int]{Value: 9, Known: true}, m.of("a", "one", time.Hour))
}

func TestOneValueIsMadeAtATimeAndNoneOfADroppedKey(t *testing.T) {
	t.Parallel()
	m := newMaker()
	for _, key := range []string{"a", "b", "c", "d"} {
		require.Equal(t, cache.Answer[int]{Making: true}, m.of(key, "one", 0))
	}
	over := make(chan struct{})
	made := make(chan int)
	go func() {
		n := 0
		for {
			select {
			case m.next <- 1:
				n++
			case <-over:
				made <- n
				return
			}
		}
	}()
	m.work.Wait()
	close(over)
	require.LessOrEqual(t, <-made, 3, "two are kept, and one may have begun before it was dropped")
	require.True(t, m.of("c", "one", time.Hour).Known)
	require.True(t, m.of("d", "one", time.Hour).Known)
}

func TestOnlySoManyAreKept(t *testing.T) {
	t.Parallel()
	m := newMaker()
	for _, key := range []string{"a", "b", "c"} {
		m.of(key, "one", 0)
		m.next <- 1
		m.work.Wait()
	}
	require.True(t, m.of("c", "one", time.Hour).Known)
	require.False(t, m.of("a", "one", 0).Known, "it was dropped")
	m.next <- 1
	m.work.Wait()
}
