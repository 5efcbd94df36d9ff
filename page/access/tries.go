package access

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// maxTries is how often an address may present a wrong token within triesWindow.
	maxTries    = 10
	triesWindow = time.Minute
	// maxTriers bounds how many addresses are remembered.
	maxTriers = 10_000
)

// tries counts the wrong tokens that were presented, by address.
type tries struct {
	mu   sync.Mutex
	from map[string]failedTries
}

type failedTries struct {
	count int
	since time.Time
}

// wait returns how long an address has to wait before it may present a token again.
func (t *tries) wait(address string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.from[address]
	if v.count < maxTries {
		return 0
	}
	return max(0, v.since.Add(triesWindow).Sub(now))
}

// fail counts one more wrong token.
func (t *tries) fail(address string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.from == nil || len(t.from) >= maxTriers {
		kept := map[string]failedTries{}
		for key, v := range t.from {
			if now.Sub(v.since) < triesWindow && len(kept) < maxTriers/2 {
				kept[key] = v
			}
		}
		t.from = kept
	}
	v := t.from[address]
	if now.Sub(v.since) >= triesWindow {
		v = failedTries{since: now}
	}
	v.count++
	t.from[address] = v
}

// addressOf returns the address that a request comes from, without its port. For IPv6 it
// returns the /64 network, since a client that has one address has the whole network.
func addressOf(remote string) string {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		alone, err := netip.ParseAddr(remote)
		if err != nil {
			return remote
		}
		a = netip.AddrPortFrom(alone, 0)
	}
	ip := a.Addr().Unmap()
	if ip.Is6() {
		if network, err := ip.WithZone("").Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
