//go:build !serverprocess

package devserver

import (
	"sync/atomic"
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log/tag"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	"go.uber.org/zap/zapcore"
)

const clusterName = "active"

// The names of the two databases in the configuration.
const (
	historyStore    = "history"
	visibilityStore = "visibility"
)

// configuration is the server's static configuration.
func configuration(p ports, d databases) *config.Config {
	off := config.ArchivalNamespaceDefaults{
		History:    config.HistoryArchivalNamespaceDefaults{State: config.ArchivalDisabled},
		Visibility: config.VisibilityArchivalNamespaceDefaults{State: config.ArchivalDisabled},
	}
	frontend := service(p.frontend)
	frontend.RPC.HTTPPort = p.http // without it the server warns at every start
	return &config.Config{
		Global: config.Global{Membership: config.Membership{
			MaxJoinDuration:  30 * time.Second,
			BroadcastAddress: loopback,
		}},
		Persistence: config.Persistence{
			DefaultStore:    historyStore,
			VisibilityStore: visibilityStore,
			// Shards let many hosts share the work; here there is only one host.
			NumHistoryShards: 1,
			DataStores:       map[string]config.DataStore{historyStore: {SQL: d.history}, visibilityStore: {SQL: d.visibility}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
				Enabled:                true,
				InitialFailoverVersion: 1,
				RPCAddress:             hostPort(p.frontend),
			}},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services: map[string]config.Service{
			string(primitives.FrontendService): frontend,
			string(primitives.HistoryService):  service(p.history),
			string(primitives.MatchingService): service(p.matching),
			string(primitives.WorkerService):   service(p.worker),
		},
		Archival: config.Archival{
			History:    config.HistoryArchival{State: config.ArchivalDisabled},
			Visibility: config.VisibilityArchival{State: config.ArchivalDisabled},
		},
		PublicClient:      config.PublicClient{HostPort: hostPort(p.frontend)},
		NamespaceDefaults: config.NamespaceDefaults{Archival: off},
	}
}

func service(port int) config.Service {
	return config.Service{RPC: config.RPC{GRPCPort: port, BindOnIP: loopback}}
}

// hosts returns the addresses of the services, so that none has to search for the others.
func hosts(p ports) map[primitives.ServiceName]static.Hosts {
	return map[primitives.ServiceName]static.Hosts{
		primitives.FrontendService: static.SingleLocalHost(hostPort(p.frontend)),
		primitives.HistoryService:  static.SingleLocalHost(hostPort(p.history)),
		primitives.MatchingService: static.SingleLocalHost(hostPort(p.matching)),
		primitives.WorkerService:   static.SingleLocalHost(hostPort(p.worker)),
	}
}

// rememberedWorkflows is how many workflows the history service keeps in memory, with
// about 50 KB of state each.
const rememberedWorkflows = 512

// dynamic returns the settings that differ from the server's defaults. Limits are not
// changed: what a cluster would refuse has to be refused here, too.
func dynamic(o Options) dynamicconfig.StaticClient {
	values := dynamicconfig.StaticClient{
		// Runs share the workers; without fairness the first run would starve the others.
		dynamicconfig.MatchingEnableFairness.Key(): true,
		// The server would otherwise report its version to its vendor.
		dynamicconfig.EnableServerVersionCheck.Key(): false,
		// Partitions spread a queue over hosts; here they only delay.
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,
		// `temporal operator search-attribute create` takes effect at once.
		dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(): true,
		// By default the server remembers 128,000 workflows, most of them long closed, so
		// that its memory would grow with every rollout of a run. What is not remembered
		// is read from the database.
		dynamicconfig.HistoryCacheHostLevelMaxSize.Key(): rememberedWorkflows,
	}
	if o.HistoryEvents > 0 {
		values[dynamicconfig.HistoryCountSuggestContinueAsNew.Key()] = o.HistoryEvents
	}
	return values
}

// quietCore passes on what a user of the embedded server can use: warnings and
// errors while it runs.
type quietCore struct {
	zapcore.Core
	silent *atomic.Bool
}

func (c quietCore) Enabled(level zapcore.Level) bool {
	if c.silent.Load() {
		return level >= zapcore.DPanicLevel && c.Core.Enabled(level)
	}
	return level >= zapcore.WarnLevel && c.Core.Enabled(level)
}

func (c quietCore) With(fields []zapcore.Field) zapcore.Core {
	return quietCore{c.Core.With(fields), c.silent}
}

func (c quietCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(entry.Level) {
		return checked
	}
	return checked.AddCore(entry, c)
}

// Write leaves out the place in the server's source that made the entry.
func (c quietCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	kept := make([]zapcore.Field, 0, len(fields))
	for _, f := range fields {
		if f.Key != tag.LoggingCallAtKey {
			kept = append(kept, f)
		}
	}
	entry.Stack = ""
	return c.Core.Write(entry, kept)
}
