package gateway

// Memory returns the weight of the attempts in memory, and how many they are.
func (g *Gateway) Memory() (bytes int64, attempts int) {
	g.attempts.mu.Lock()
	defer g.attempts.mu.Unlock()
	return g.attempts.weight, len(g.attempts.entries)
}
