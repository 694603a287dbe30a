package toolkit

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// answerDiscovery subscribes to the discovery requests of NATS micro, PING, INFO and STATS, and answers those to all
// services, to services of this name, and to this instance.
func (s *server) answerDiscovery() error {
	for verb, answer := range map[micro.Verb]func() any{
		micro.PingVerb:  func() any { return micro.Ping{ServiceIdentity: s.identity(), Type: micro.PingResponseType} },
		micro.InfoVerb:  func() any { return s.info() },
		micro.StatsVerb: func() any { return s.statistics() },
	} {
		for _, to := range [][2]string{{}, {s.tool.Name}, {s.tool.Name, s.id}} {
			subject := DiscoverySubject(verb, s.prefix, s.tenant)
			for _, token := range to {
				if token != "" {
					subject += "." + token
				}
			}
			sub, err := s.nc.Subscribe(subject, func(m *nats.Msg) {
				if data, err := json.Marshal(answer()); err == nil {
					_ = m.Respond(data)
				}
			})
			if err != nil {
				s.stopDiscovery()
				return err
			}
			s.control = append(s.control, sub)
		}
	}
	return nil
}

// stopDiscovery unsubscribes from discovery requests.
func (s *server) stopDiscovery() {
	for _, sub := range s.control {
		_ = sub.Unsubscribe() // it fails only on a closed connection
	}
}

func (s *server) metadata() map[string]string {
	return map[string]string{MetaDescription: s.tool.Description, MetaSchema: string(s.tool.Schema)}
}

func (s *server) identity() micro.ServiceIdentity {
	return micro.ServiceIdentity{Name: s.tool.Name, ID: s.id, Version: s.tool.Version, Metadata: s.metadata()}
}

func (s *server) info() micro.Info {
	return micro.Info{
		ServiceIdentity: s.identity(), Type: micro.InfoResponseType, Description: s.tool.Description,
		Endpoints: []micro.EndpointInfo{{Name: s.tool.Name, Subject: s.subject, QueueGroup: micro.DefaultQueueGroup, Metadata: s.metadata()}},
	}
}

func (s *server) statistics() micro.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.stats
	e.Name, e.Subject, e.QueueGroup = s.tool.Name, s.subject, micro.DefaultQueueGroup
	return micro.Stats{
		ServiceIdentity: s.identity(), Type: micro.StatsResponseType, Started: s.started.Truncate(time.Millisecond), Endpoints: []*micro.EndpointStats{&e},
	}
}
