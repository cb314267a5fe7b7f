-- base/secrets.lua: masks passwords, tokens and keys before they are stored, because people share
-- results folders.
--
-- A value is secret by its name, or by its place in an address (user:password@host). In the
-- environment any suspicious part of a name suffices, because no result depends on the stored copy.
-- The values of a configuration, a command line or overrides distinguish trials, so they are masked
-- only if the name is unambiguous, and numbers never: tokens=512, mask_token="[MASK]" stay.
local secrets = {}

secrets.MASK = "***"

local parts = { "key", "token", "secret", "pass", "pw", "jwt", "credential", "auth", "cookie" }

-- Returns whether an environment variable, or a variable in a changed source file, may be a secret.
function secrets.variable(name)
  local low = name:lower():gsub("author", "")
  for _, part in ipairs(parts) do
    if low:find(part, 1, true) then return true end
  end
  return false
end

local words = {}
for word in ([[secret secrets password passwd passphrase passcode pass pwd jwt credential
    credentials auth cookie apikey bearer]]):gmatch "%S+" do
  words[word] = true
end

local tokens = {} -- the words before "token" that mean a token of a text: mask_token = "[MASK]"
for word in ("mask pad eos bos unk sep cls end start special next last first"):gmatch "%S+" do
  tokens[word] = true
end

local function is_certain(name)
  local before, last
  for part in name:gsub("(%l)(%u)", "%1_%2"):lower():gmatch "[%w]+" do
    if words[part] then return true end
    before, last = last, part
  end
  return last == "token" and not tokens[before] or last == "key" and before ~= nil
end

local known = {} -- cache: a sweep of 10,000 trials asks for the same keys each time

-- Returns whether a name can only mean a secret: password, hf_token, openaiKey, SLURM_JWT.
function secrets.certain(name)
  if known[name] == nil then known[name] = is_certain(name) end
  return known[name]
end

-- Masks users and passwords of addresses in a string; returns other values unchanged. The patterns
-- begin with rare characters, which is fast on long strings.
function secrets.text(text)
  if type(text) ~= "string" or not text:find("@", 1, true) then return text end
  text = text:gsub("(%w?%w?%w?%w?%w)://([^%s/?#'\"]*)@", function(scheme, user)
    local open = not user:find(":", 1, true) and not scheme:lower():find "https?$" -- ssh://git@
    return not open and scheme .. "://" .. secrets.MASK .. "@" or nil
  end)
  return (text:gsub("([%w._+-]):([^%s:@/'\"]+)(@[%w%[])", function(user, password, host)
    return not tonumber(password) and user .. ":" .. secrets.MASK .. host or nil -- not 12:30@gpu0
  end))
end

local function plain(value)
  return tonumber(value) ~= nil or value == "true" or value == "false" or value == ""
end

-- Masks a word of a command line, or an override: name=value, --name=value.
function secrets.word(word)
  local dashes, name, value = word:match "^(%-*)([%w_.-]+)=(.*)$"
  if name and not plain(value)
    and (secrets.certain(name) or dashes ~= "" and secrets.variable(name)) then
    return ("%s%s=%s"):format(dashes, name, secrets.MASK)
  end
  return secrets.text(word)
end

-- Masks the words of a command line, including the word after --password.
function secrets.words(list)
  local masked = {}
  for i, word in ipairs(list) do
    local before = i > 1 and list[i - 1]:match "^%-%-([%w_-]+)$"
    masked[i] = before and secrets.certain(before) and not plain(word) and secrets.MASK
      or secrets.word(word)
  end
  return masked
end

-- Returns a configuration with its secrets masked; the same table if it has none.
function secrets.config(values)
  local copy, changed = {}, false
  for key, value in pairs(values) do
    local new = value
    if type(value) == "table" then
      new = secrets.config(value)
    elseif type(value) == "string" then
      new = type(key) == "string" and secrets.certain(key) and not plain(value) and secrets.MASK
        or secrets.text(value)
    end
    copy[key], changed = new, changed or new ~= value
  end
  return changed and copy or values
end

-- Returns the environment {name = value} with its secrets masked.
function secrets.environment(set)
  local masked = {}
  for name, value in pairs(set) do
    masked[name] = secrets.variable(name) and secrets.MASK or secrets.text(tostring(value))
  end
  return masked
end

return secrets
