//go:build !serverprocess

package devserver

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/server/api/persistence/v1"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/persistence/serialization"
	"go.temporal.io/server/common/persistence/sql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	"go.temporal.io/server/common/resolver"
	"go.temporal.io/server/common/searchattribute/sadefs"
	schema "go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

// register makes the namespace, or changes it to what the options say. It writes to the
// database before the server starts. The server's own interface would also do, but the
// server's caches would refuse a new search attribute for some seconds.
func register(ctx context.Context, cfg *config.SQL, o Options) (err error) {
	fresh, err := schema.NewNamespaceConfig(clusterName, o.Namespace, false, nil)
	if err != nil {
		return err
	}
	if err := configure(fresh.Detail.Config, o); err != nil {
		return err
	}
	if err := schema.CreateNamespaces(cfg, fresh); err != nil {
		return err
	}
	db, err := sql.NewSQLDB(sqlplugin.DbKindUnknown, cfg, resolver.NewNoopResolver(), log.NewNoopLogger(), metrics.NoopMetricsHandler)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return update(ctx, db, o)
}

// update changes a namespace, which may be older, to what the options say.
func update(ctx context.Context, db sqlplugin.DB, o Options) error {
	rows, err := db.SelectFromNamespace(ctx, sqlplugin.NamespaceFilter{Name: &o.Namespace})
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return stdsql.ErrNoRows
	}
	row, codec := rows[0], serialization.NewSerializer()
	encoding, err := enums.EncodingTypeFromString(row.DataEncoding)
	if err != nil {
		return err
	}
	detail, err := codec.NamespaceDetailFromBlob(&common.DataBlob{Data: row.Data, EncodingType: encoding})
	if err != nil {
		return err
	}
	if err := configure(detail.Config, o); err != nil {
		return err
	}
	blob, err := codec.NamespaceDetailToBlob(detail)
	if err != nil {
		return err
	}
	row.Data, row.DataEncoding = blob.Data, blob.EncodingType.String()
	_, err = db.UpdateNamespace(ctx, &row)
	return err
}

// configure sets the retention and adds the search attributes that are absent.
// SQL visibility has a fixed number of columns per type ("Keyword01"); an
// attribute is a name for one of them.
func configure(c *persistence.NamespaceConfig, o Options) error {
	c.Retention = durationpb.New(max(o.Retention, time.Hour)) // Temporal's least
	columns := sadefs.GetDBIndexSearchAttributes(nil).CustomSearchAttributes
	aliases := maps.Clone(c.CustomSearchAttributeAliases)
	if aliases == nil {
		aliases = map[string]string{}
	}
	registered := map[string]enums.IndexedValueType{}
	for column, name := range aliases {
		registered[name] = columns[column]
	}
	for _, name := range slices.Sorted(maps.Keys(o.SearchAttributes)) {
		want := o.SearchAttributes[name]
		if has, ok := registered[name]; ok {
			if has != want {
				return fmt.Errorf("search attribute %s is registered as %s, wanted %s", name, has, want)
			}
			continue
		}
		column := freeColumn(columns, aliases, want)
		if column == "" {
			return fmt.Errorf("search attribute %s: no column of type %s is left", name, want)
		}
		aliases[column] = name
	}
	c.CustomSearchAttributeAliases = aliases
	return nil
}

func freeColumn(columns map[string]enums.IndexedValueType, aliases map[string]string, want enums.IndexedValueType) string {
	for _, column := range slices.Sorted(maps.Keys(columns)) {
		if _, taken := aliases[column]; !taken && columns[column] == want {
			return column
		}
	}
	return ""
}
