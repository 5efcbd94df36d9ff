import json, os, sys, time, urllib.error, urllib.request

task = json.load(sys.stdin)
sample = int(os.environ["FULGURITE_ROLLOUT"].split("/")[-1])


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def tool(name):
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return {"type": "function", "function": {"name": name, "description": "Do it.", "parameters": parameters}}


def chat(messages, agent=None, **more):
    base = os.environ["OPENAI_BASE_URL"]
    if agent:
        base = base.removesuffix("/v1") + "/n/" + agent + "/v1"
    body = json.dumps({"model": "any", "messages": messages, **more}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(base + "/chat/completions", body, headers)
    try:
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)["choices"][0]["message"]
    except urllib.error.HTTPError as refusal:
        sys.exit("refused: " + refusal.read().decode())

