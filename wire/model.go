package wire

import "time"

// owner is the name of the owner of all models.
const owner = "fulgurite"

// openModel is the JSON of a model in OpenAI's APIs.
type openModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // "model"
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// messagesModel is the JSON of a model in Messages.
type messagesModel struct {
	Type        string    `json:"type"` // "model"
	ID          string    `json:"id"`
	DisplayName string    `json:"display_name"`
	CreatedAt   time.Time `json:"created_at"`
}

func openModelOf(name string) openModel { return openModel{ID: name, Object: "model", OwnedBy: owner} }

// messagesModelOf describes a model with the time 0 of Unix, as openModelOf does.
func messagesModelOf(name string) messagesModel {
	return messagesModel{"model", name, name, time.Unix(0, 0).UTC()}
}

// Model returns the body that describes a model.
func (api API) Model(name string) []byte {
	if api == Messages {
		return marshal(messagesModelOf(name))
	}
	return marshal(openModelOf(name))
}

// Models returns the body that lists models, all of them on one page.
func (api API) Models(names []string) []byte {
	if api != Messages {
		all := make([]openModel, len(names))
		for i, name := range names {
			all[i] = openModelOf(name)
		}
		return marshal(struct {
			Object string      `json:"object"`
			Data   []openModel `json:"data"`
		}{"list", all})
	}
	all := make([]messagesModel, len(names))
	for i, name := range names {
		all[i] = messagesModelOf(name)
	}
	first, last := "", ""
	if len(names) > 0 {
		first, last = names[0], names[len(names)-1]
	}
	return marshal(struct {
		Data    []messagesModel `json:"data"`
		HasMore bool            `json:"has_more"`
		FirstID *string         `json:"first_id"`
		LastID  *string         `json:"last_id"`
	}{all, false, nullable(first), nullable(last)})
}
