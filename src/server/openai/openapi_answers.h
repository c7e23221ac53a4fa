// The shapes of answers in the OpenAPI description: components/schemas as JSON.
#pragma once

#include <string_view>

namespace headwater::server::openai {

inline constexpr std::string_view kAnswerSchemas = R"({
  "Error": {
    "type": "object", "required": ["error"],
    "properties": {"error": {
      "type": "object", "required": ["message", "type", "param", "code"],
      "properties": {
        "message": {"type": "string", "description": "What is wrong, the limit, and what to do."},
        "type": {"type": "string"},
        "param": {"type": ["string", "null"], "description": "The field."},
        "code": {"type": ["string", "null"], "description": "For programs, such as context_length_exceeded."}}}}
  },
  "Usage": {
    "type": "object",
    "required": ["prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"],
    "properties": {
      "prompt_tokens": {"type": "integer", "minimum": 0},
      "completion_tokens": {"type": "integer", "minimum": 0},
      "total_tokens": {"type": "integer", "minimum": 0},
      "prompt_tokens_details": {
        "type": "object", "required": ["cached_tokens"],
        "properties": {"cached_tokens": {"type": "integer", "minimum": 0, "description": "From the prefix cache."}}}}
  },
  "TokenLogprob": {
    "type": "object", "required": ["token", "logprob", "bytes"],
    "properties": {
      "token": {"type": "string"},
      "logprob": {"type": "number", "description": "-9999 stands for minus infinity."},
      "bytes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}},
      "top_logprobs": {"type": "array", "items": {"$ref": "#/components/schemas/TokenLogprob"}}}
  },
  "FinishReason": {"enum": ["stop", "length", null]},
  "ChatCompletion": {
    "type": "object", "required": ["id", "object", "created", "model", "choices", "usage"],
    "properties": {
      "id": {"type": "string"}, "object": {"const": "chat.completion"},
      "created": {"type": "integer"}, "model": {"type": "string"},
      "choices": {"type": "array", "items": {
        "type": "object", "required": ["index", "message", "logprobs", "finish_reason"],
        "properties": {
          "index": {"type": "integer", "minimum": 0},
          "message": {
            "type": "object", "required": ["role", "content"],
            "properties": {
              "role": {"const": "assistant"},
              "content": {"type": ["string", "null"]},
              "reasoning_content": {"type": ["string", "null"], "description": "What the model thought first."}}},
          "logprobs": {"anyOf": [{"type": "null"}, {
            "type": "object", "required": ["content"],
            "properties": {"content": {"type": "array", "items": {"$ref": "#/components/schemas/TokenLogprob"}}}}]},
          "finish_reason": {"$ref": "#/components/schemas/FinishReason"}}}},
      "usage": {"$ref": "#/components/schemas/Usage"}}
  },
  "Completion": {
    "type": "object", "required": ["id", "object", "created", "model", "choices", "usage"],
    "properties": {
      "id": {"type": "string"}, "object": {"const": "text_completion"},
      "created": {"type": "integer"}, "model": {"type": "string"},
      "choices": {"type": "array", "items": {
        "type": "object", "required": ["index", "text", "logprobs", "finish_reason"],
        "properties": {
          "index": {"type": "integer", "minimum": 0},
          "text": {"type": "string"},
          "logprobs": {"anyOf": [{"type": "null"}, {
            "type": "object", "required": ["tokens", "token_logprobs", "top_logprobs", "text_offset"],
            "properties": {
              "tokens": {"type": "array", "items": {"type": "string"}},
              "token_logprobs": {"type": "array", "items": {"type": ["number", "null"]}},
              "top_logprobs": {"type": ["array", "null"],
                               "items": {"type": ["object", "null"], "additionalProperties": {"type": "number"}}},
              "text_offset": {"type": "array", "items": {"type": "integer", "minimum": 0}}}}]},
          "finish_reason": {"$ref": "#/components/schemas/FinishReason"}}}},
      "usage": {"$ref": "#/components/schemas/Usage"}}
  },
  "Events": {
    "type": "object", "required": ["data"],
    "properties": {"data": {"type": "string"}},
    "description": "One of the server-sent events: data: {chunk}, the last one data: [DONE]; comments keep the connection alive. An error after the beginning is one event data: {\"error\": ...}."
  },
  "Model": {
    "type": "object", "required": ["id", "object", "created", "owned_by", "max_model_len"],
    "properties": {
      "id": {"type": "string"}, "object": {"const": "model"}, "created": {"type": "integer"},
      "owned_by": {"const": "headwater"},
      "max_model_len": {"type": "integer", "description": "Tokens of prompt and answer together, at most."}}
  },
  "Models": {
    "type": "object", "required": ["object", "data"],
    "properties": {
      "object": {"const": "list"},
      "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}}
  },
  "TokenIds": {"type": "array", "items": {"type": "integer", "minimum": 0}},
  "Tokens": {
    "type": "object", "required": ["tokens", "count", "max_model_len"],
    "properties": {
      "tokens": {"$ref": "#/components/schemas/TokenIds"},
      "count": {"type": "integer", "minimum": 0},
      "max_model_len": {"type": "integer"},
      "token_strs": {"type": ["array", "null"], "items": {"type": "string"}}}
  },
  "Text": {
    "type": "object", "required": ["content", "prompt"],
    "properties": {"content": {"type": "string"}, "prompt": {"type": "string", "description": "The same text."}}
  },
  "Rendered": {
    "type": "object", "required": ["request_id", "token_ids", "model"],
    "properties": {
      "request_id": {"type": "string"},
      "token_ids": {"$ref": "#/components/schemas/TokenIds"},
      "model": {"type": "string"}}
  },
  "RenderedList": {"type": "array", "items": {"$ref": "#/components/schemas/Rendered"}},
  "Cache": {
    "type": "object", "required": ["page_size", "pages", "sequences"],
    "properties": {
      "page_size": {"type": "integer", "minimum": 1, "description": "Tokens of a page."},
      "pages": {
        "type": "object", "required": ["total", "free", "cached", "held"],
        "additionalProperties": {"type": "integer", "minimum": 0}},
      "sequences": {"type": "array", "items": {"type": "object"}}}
  },
  "Description": {"type": "object", "required": ["openapi", "paths"]},
  "Health": {"type": "object", "required": ["status"], "properties": {"status": {"const": "ok"}}},
  "Version": {"type": "object", "required": ["version"], "properties": {"version": {"type": "string"}}},
  "Message": {
    "type": "object", "required": ["role"], "anyOf": [{"required": ["content"]}, {"required": ["tool_calls"]}],
    "properties": {
      "role": {"type": "string", "minLength": 1, "description": "Which roles there are is the template's business."},
      "content": {"anyOf": [
        {"type": ["string", "null"]},
        {"type": "array", "items": {
          "type": "object", "required": ["type", "text"],
          "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}}]},
      "tool_calls": {"type": ["array", "null"], "items": {
        "type": "object", "required": ["function"],
        "properties": {"id": {"type": "string"}, "type": {"const": "function"}, "function": {
          "type": "object", "required": ["name"],
          "properties": {"name": {"type": "string"}, "arguments": {"type": ["string", "object"]}}}}}},
      "tool_call_id": {"type": ["string", "null"]},
      "function_call": {"type": "null", "description": "The old name of tool_calls; use that."}}
  },
  "Tool": {
    "type": "object", "required": ["type", "function"],
    "properties": {"type": {"const": "function"}, "function": {
      "type": "object", "required": ["name"],
      "properties": {"name": {"type": "string"}, "description": {"type": ["string", "null"]}, "parameters": {"type": ["object", "null"]}}}}
  }
})";

}  // namespace headwater::server::openai
