package access

import (
	"net"
	"net/netip"
	"strings"
)

func fromLoopback(address string) bool {
	a, err := netip.ParseAddrPort(address)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

// loopbackHost reports whether a Host header is a name of loopback. Any other name may be
// another site's, although its address leads here.
func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return IsLoopback(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}

// IsLoopback reports whether a host, without a port, is localhost or a loopback address.
func IsLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}
