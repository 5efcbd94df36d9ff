package gateway

// Memory returns the weight of the attempts in memory, and how many they are.
func (g *Gateway) Memory() (bytes int64, attempts int) {
	g.conversations.mu.Lock()
	defer g.conversations.mu.Unlock()
	return g.conversations.weight, len(g.conversations.entries)
}
