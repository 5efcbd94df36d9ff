package gateway

// Memory is what the attempts in memory weigh, and how many they are.
func (g *Gateway) Memory() (bytes int64, attempts int) {
	g.attempts.mu.Lock()
	defer g.attempts.mu.Unlock()
	return g.attempts.weight, len(g.attempts.entries)
}
