package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/workflows"
)

// Cluster asks Temporal what it has registered.
type Cluster struct {
	Client    client.Client
	Namespace string
}

// HasSearchAttributes implements activities.Cluster.
func (c Cluster) HasSearchAttributes(ctx context.Context) (bool, error) {
	absent, err := c.absent(ctx)
	return len(absent) == 0, err
}

// RegisterSearchAttributes adds the search attributes that are absent and returns their
// names. Not every cluster lets its users do that.
func (c Cluster) RegisterSearchAttributes(ctx context.Context) ([]string, error) {
	absent, err := c.absent(ctx)
	if err != nil || len(absent) == 0 {
		return nil, err
	}
	_, err = c.Client.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
		Namespace: c.Namespace, SearchAttributes: absent,
	})
	if err != nil {
		return nil, fmt.Errorf("add search attributes: %w", err)
	}
	return slices.Sorted(maps.Keys(absent)), nil
}

func (c Cluster) absent(ctx context.Context) (map[string]enums.IndexedValueType, error) {
	r, err := c.Client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: c.Namespace})
	if err != nil {
		return nil, fmt.Errorf("list search attributes: %w", err)
	}
	absent := workflows.SearchAttributes()
	maps.DeleteFunc(absent, func(name string, _ enums.IndexedValueType) bool {
		_, there := r.CustomAttributes[name]
		return there
	})
	return absent, nil
}
