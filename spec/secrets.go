package spec

// WithoutSecrets is s without the values that may be secret and that nothing but the
// worker that runs an agent needs: its environment and the headers of its service.
// Temporal keeps what passes through it, for everybody who may look.
func (s Spec) WithoutSecrets() Spec {
	s.Agent.Environment = nil
	if s.Agent.Service != nil {
		service := *s.Agent.Service
		service.Headers = nil
		s.Agent.Service = &service
	}
	return s
}
