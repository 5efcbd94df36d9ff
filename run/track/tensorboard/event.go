package tensorboard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fulgurite/fulgurite/run/track"
)

// A record is framed like this, with all integers in little-endian:
//
//	uint64 length
//	uint32 masked CRC-32C of length
//	byte   data[length]
//	uint32 masked CRC-32C of data
const (
	headerSize = 12
	frameSize  = headerSize + 4
)

// maxRecord is the largest record that is read: the largest message of protocol buffers.
const maxRecord = math.MaxInt32

// errTorn is returned for a record that is not whole.
var errTorn = errors.New("the record is not whole")

// maskedCRC is the checksum that TFRecord files have. It differs from the CRC itself because
// data may contain checksums.
func maskedCRC(data []byte) uint32 {
	crc := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// appendRecord appends data as a record.
func appendRecord(to, data []byte) []byte {
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	to = append(to, length...)
	to = binary.LittleEndian.AppendUint32(to, maskedCRC(length))
	to = append(to, data...)
	return binary.LittleEndian.AppendUint32(to, maskedCRC(data))
}

// readRecord reads the data of a record. It returns io.EOF at the end, and errTorn for a
// record that is not whole.
func readRecord(file io.Reader) ([]byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(file, header[:]); err != nil {
		return nil, torn(err)
	}
	length := binary.LittleEndian.Uint64(header[:8])
	if binary.LittleEndian.Uint32(header[8:]) != maskedCRC(header[:8]) || length > maxRecord {
		return nil, errTorn
	}
	data, err := io.ReadAll(io.LimitReader(file, int64(length)+4))
	if err != nil {
		return nil, err
	}
	if uint64(len(data)) != length+4 || binary.LittleEndian.Uint32(data[length:]) != maskedCRC(data[:length]) {
		return nil, errTorn
	}
	return data[:length], nil
}

func torn(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errTorn
	}
	return err
}

// The numbers of fields, of tensorflow.Event and the messages in it.
const (
	eventTime    protowire.Number = 1
	eventStep    protowire.Number = 2
	eventVersion protowire.Number = 3
	eventSummary protowire.Number = 5

	summaryValue protowire.Number = 1

	valueTag      protowire.Number = 1
	valueSimple   protowire.Number = 2
	valueTensor   protowire.Number = 8
	valueMetadata protowire.Number = 9

	tensorType   protowire.Number = 1
	tensorShape  protowire.Number = 2
	tensorString protowire.Number = 8

	metadataPlugin protowire.Number = 1
	pluginName     protowire.Number = 1
)

const (
	fileVersion = "brain.Event:2"
	stringType  = 7 // DT_STRING
)

// versionEvent returns the event that a file begins with.
func versionEvent(at time.Time) []byte {
	data := appendTime(nil, at)
	data = protowire.AppendTag(data, eventVersion, protowire.BytesType)
	return protowire.AppendString(data, fileVersion)
}

// entryEvent returns an entry as one event.
func entryEvent(e track.Entry) []byte {
	var summary []byte
	for _, v := range e.Values {
		summary = appendBytes(summary, summaryValue, scalarValue(v))
	}
	for _, t := range e.Texts {
		summary = appendBytes(summary, summaryValue, textValue(t))
	}
	if e.Spec != nil {
		summary = appendBytes(summary, summaryValue, textValue(track.Text{Name: track.SpecName, Text: "```json\n" + string(e.Spec) + "\n```"}))
	}
	data := appendTime(nil, e.Time)
	if e.Step != 0 { // as all encoders leave zeros out
		data = appendVarint(data, eventStep, uint64(e.Step))
	}
	return appendBytes(data, eventSummary, summary)
}

func appendTime(data []byte, at time.Time) []byte {
	seconds := float64(at.Unix()) + float64(at.Nanosecond())/1e9
	data = protowire.AppendTag(data, eventTime, protowire.Fixed64Type)
	return protowire.AppendFixed64(data, math.Float64bits(seconds))
}

func appendBytes(data []byte, field protowire.Number, value []byte) []byte {
	data = protowire.AppendTag(data, field, protowire.BytesType)
	return protowire.AppendBytes(data, value)
}

func appendVarint(data []byte, field protowire.Number, value uint64) []byte {
	data = protowire.AppendTag(data, field, protowire.VarintType)
	return protowire.AppendVarint(data, value)
}

func scalarValue(v track.Value) []byte {
	data := appendBytes(nil, valueTag, []byte(v.Name))
	data = protowire.AppendTag(data, valueSimple, protowire.Fixed32Type)
	return protowire.AppendFixed32(data, math.Float32bits(float32(v.Number)))
}

// textValue returns a text for TensorBoard's plugin "text", which reads Markdown.
func textValue(t track.Text) []byte {
	plugin := appendBytes(nil, pluginName, []byte("text"))
	metadata := appendBytes(nil, metadataPlugin, plugin)
	tensor := appendVarint(nil, tensorType, stringType)
	tensor = appendBytes(tensor, tensorShape, nil) // a scalar
	tensor = appendBytes(tensor, tensorString, []byte(t.Text))
	data := appendBytes(nil, valueTag, []byte(t.Name))
	data = appendBytes(data, valueTensor, tensor)
	return appendBytes(data, valueMetadata, metadata)
}

// event is what is read back of an event.
type event struct {
	step int
	tags []string
}

// readEvent reads the step and the tags of an event. It skips all other fields.
func readEvent(data []byte) (e event, err error) {
	err = fields(data, func(number protowire.Number, value []byte, varint uint64) error {
		switch number {
		case eventStep:
			e.step = int(varint)
		case eventSummary:
			return fields(value, func(number protowire.Number, value []byte, _ uint64) error {
				if number != summaryValue {
					return nil
				}
				return fields(value, func(number protowire.Number, value []byte, _ uint64) error {
					if number == valueTag {
						e.tags = append(e.tags, string(value))
					}
					return nil
				})
			})
		}
		return nil
	})
	return e, err
}

// fields calls read for each field of a message, with its bytes or its varint.
func fields(data []byte, read func(number protowire.Number, value []byte, varint uint64) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return fmt.Errorf("read field: %w", protowire.ParseError(n))
		}
		data = data[n:]
		var value []byte
		var varint uint64
		switch kind {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(data)
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(data)
		default:
			n = protowire.ConsumeFieldValue(number, kind, data)
		}
		if n < 0 {
			return fmt.Errorf("read field %d: %w", number, protowire.ParseError(n))
		}
		if err := read(number, value, varint); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
