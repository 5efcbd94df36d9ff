// Package retrieval is a tool for agents: it finds the paragraphs of a corpus that match
// a query best, by BM25. It serves this over HTTP, both plain and as the Model Context
// Protocol (https://modelcontextprotocol.io).
//
// It is not a search engine for the web, and has no embeddings. It knows nothing about
// runs: an agent's searches are on record as the agent's tool calls.
//
// Guarantees: the same corpus and the same query give the same paragraphs in the same
// order, whatever was asked before.
package retrieval
