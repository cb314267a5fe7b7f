-- store/selection.lua: finds the trials that the words of a command line select, for every verb.
--
--   3f9c1a      the trial with this id prefix     @last, @last:3   the trials started last
--   quickstart  the trials of an experiment       @best:loss       the best of the finished trials
--   @all        all trials
--   decay=0.99  lr<1e-3  val_ppl>=20  tag=paper  error~nan         filters
--   decay=0.9,0.99                                                 one of these values
--   @failed, @failed @timeout                                      a status, one of several
--
-- Names add up, filters narrow the result, and @last and @best choose among the filtered trials;
-- beside these two, the name of an experiment is a filter. The name in a filter is a key of the
-- configuration, a metric (its last value) or a column, searched in this order; config:NAME,
-- metric:NAME and column:NAME force one. The words become one SQL condition with all values bound.
local alive = require "toeplab.store.alive"
local direction = require "toeplab.base.direction"
local quantity = require "toeplab.base.quantity"
local json = require "toeplab.base.json"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

-- Query:value returns TRUE and FALSE for booleans, because SQLite cannot distinguish booleans from
-- 1 and 0.
local selection = { TRUE = "\0true", FALSE = "\0false" }

local Query = {}
Query.__index = Query

selection.statuses = { "queued", "running", "done", "failed", "interrupted", "killed", "pruned",
  "timeout", "budget", "guard" }

-- A paragraph in the help of every verb that takes these words.
selection.help = "TRIAL: the beginning of an id, an experiment, @last, @last:N, @best:METRIC, "
  .. "@all;\n"
  .. "or a filter: @STATUS, key=value (or a,b), also != < <= > >= and ~ (contains), where key is\n"
  .. "a configuration key, a metric, or a column: status, tag, host, error, age, ..."

local columns = {
  id = "t.id", experiment = "t.experiment", sweep = "t.sweep", seed = "t.seed", step = "t.step",
  attempt = "t.attempt", started = "t.started", finished = "t.finished", created = "t.created",
  seconds = "t.seconds", host = "t.host", pid = "t.pid", error = "t.error", tags = "t.tags",
  notes = "t.notes", command = "t.command", commit = "t.git_commit", code = "t.code_hash",
  data = "t.data_hash", numerics = "t.numerics", trial = "json_extract(t.provenance, '$.label')",
  job = "json_extract(t.provenance, '$.job')",
  scale = "(SELECT scale FROM sweeps WHERE sweeps.id = t.sweep)",
  age = "((julianday('now') - 2440587.5) * 86400.0 - t.started)",
}

selection.columns = sorted_keys(columns)

local aliases = { tag = "tags", note = "notes", label = "trial", time = "seconds",
  git_commit = "commit", code_hash = "code", data_hash = "data" }

local dates = { started = true, finished = true, created = true }
local durations = { seconds = true, age = true }

-- ---- Status -----------------------------------------------------------------------------------

-- Returns the trials that are marked as running: {id=, killed= (whether no process runs it any
-- longer), alive.COLUMNS}.
function selection.running(store)
  local list = store:rows(("SELECT id, %s FROM trials WHERE status = 'running'")
    :format(alive.COLUMNS))
  for _, row in ipairs(list) do row.killed = not alive.possibly(store.folder, row) end
  return list
end

-- Returns the running trials that were not killed: id -> row as above.
function selection.alive(store)
  local rows = {}
  for _, row in ipairs(selection.running(store)) do rows[row.id] = not row.killed and row or nil end
  return rows
end

-- Returns the SQL of the status of trial t: the reason of an early end takes precedence, and a
-- running trial whose process has died is "killed".
local function status_sql(store)
  local dead, plain = {}, "coalesce(t.ended, t.status)"
  for _, row in ipairs(selection.running(store)) do
    if row.killed then dead[#dead + 1] = "'" .. row.id:gsub("'", "''") .. "'" end
  end
  if #dead == 0 then return plain end
  return ("CASE WHEN t.id IN (%s) THEN 'killed' ELSE %s END"):format(table.concat(dead, ","), plain)
end

-- ---- Names ------------------------------------------------------------------------------------

-- Adds a parameter of the statement; returns its placeholder in SQL.
function Query:bind(value)
  local p = self.params
  p.n = p.n + 1
  p[p.n] = value
  return "?" .. p.n
end

-- Returns the sorted lists of keys and metrics of the newest trials, which suffice for suggestions.
function selection.names(store)
  return store:values [[SELECT DISTINCT j.key FROM (SELECT config FROM trials
      WHERE trashed IS NULL ORDER BY rowid DESC LIMIT 300) c, json_each(c.config) j ORDER BY 1]],
    store:values [[SELECT DISTINCT name FROM last WHERE trial IN (SELECT id
      FROM trials WHERE trashed IS NULL ORDER BY rowid DESC LIMIT 300) ORDER BY 1]]
end

-- The kinds of names. Each function takes the query and the name, and returns SQL or nil.
local kinds = {}

function kinds.config(query, name)
  if name:find('"', 1, true) then return nil end
  local path = '$."' .. name .. '"'
  local sql = "SELECT 1 FROM trials WHERE json_type(config, ?) IS NOT NULL LIMIT 1"
  if not query.store:rows(sql, { path })[1] then return nil end
  local place = query:bind(path)
  return ("CASE json_type(t.config, %s) WHEN 'true' THEN %s WHEN 'false' THEN %s "
    .. "ELSE json_extract(t.config, %s) END"):format(place, query:bind(selection.TRUE),
    query:bind(selection.FALSE), place)
end

function kinds.metric(query, name)
  if not query.store:rows("SELECT 1 FROM last WHERE name = ? LIMIT 1", { name })[1] then
    return nil
  end
  return ("(SELECT value FROM last WHERE last.trial = t.id AND last.name = %s)")
    :format(query:bind(name))
end

function kinds.column(query, name)
  name = aliases[name] or name
  return name == "status" and query.status or columns[name], name
end

-- Raises the usage error for a name that is unknown in these kinds, with a suggestion.
local function refuse_name(store, name, tried)
  local known = { column = { "status" } }
  known.config, known.metric = selection.names(store)
  for _, t in ipairs { columns, aliases } do
    for _, column in ipairs(sorted_keys(t)) do table.insert(known.column, column) end
  end
  local names = {}
  for _, kind in ipairs(tried) do
    table.move(known[kind], 1, #known[kind], #names + 1, names)
  end
  local what = #tried > 1 and "key, metric or column" or tried[1] == "config" and "key"
    or tried[1]
  errors.usage("no trial of %s has a %s '%s'%s", store.folder, what, name,
    suggest.hint(name, names))
end

-- Returns the SQL of the value of trial t that word names, its kind (config, metric or column) and,
-- for a column, the column's name instead of an alias. Raises a usage error for an unknown name.
function Query:value(word)
  local kind, name = word:match("^(%l+):(.+)$")
  local tried = { kind }
  if not kinds[kind] then name, tried = word, { "config", "metric", "column" } end
  for _, try in ipairs(tried) do
    local sql, column = kinds[try](self, name)
    if sql then return sql, try, column end
  end
  refuse_name(self.store, name, tried)
end

-- ---- Filters ----------------------------------------------------------------------------------

local infinite = { inf = math.huge, ["-inf"] = -math.huge }

-- Returns the number that a filter compares with. For columns of dates, text may be a day, and the
-- number is its first second in local time; for columns of durations, text may have a unit. Raises
-- a usage error for any other text.
local function number(word, column, text)
  local x = tonumber(text) or infinite[text]
  if x then return x end
  local year, month, day = text:match("^(%d%d%d%d)-(%d%d)-(%d%d)$")
  if dates[column] and year then
    local time = os.time { year = year, month = month, day = day, hour = 0 }
    if os.date("%Y-%m-%d", time) == text then return time end -- the day exists
  end
  if durations[column] then x = quantity.seconds(text) end
  local expected = dates[column] and "a day like 2026-11-21" or durations[column]
    and "a time like 90s, 30m, 4h or 2d" or "a number"
  return x or errors.usage("'%s': compare %s with %s", word, word:match("^[^<>]+"), expected)
end

-- Returns the values of a configuration that a user may mean by text: a string, a number, a
-- boolean; with commas also a list, and each of its items.
local function meanings(text)
  local list, items = { text, tonumber(text) or infinite[text] }, {}
  if text == "true" or text == "false" then
    list[#list + 1] = text == "true" and selection.TRUE or selection.FALSE
  end
  if not text:find(",", 1, true) then return list end
  for item in (text .. ","):gmatch("([^,]*),") do
    items[#items + 1] = math.tointeger(item) or tonumber(item) or item
    table.move(meanings(item), 1, 3, #list + 1, list)
  end
  list[#list + 1] = json.encode(items)
  return list
end

-- Conditions on columns of words, of which a filter gives one, and of hashes, of which it gives the
-- beginning.
local function has_tag(query, _, text)
  return ("instr(' ' || t.tags || ' ', ' ' || %s || ' ') > 0"):format(query:bind(text))
end

local function begins(query, value, text)
  return ("substr(%s, 1, %d) = %s"):format(value, #text, query:bind(text))
end

local by_column = { tags = has_tag, commit = begins, code = begins, data = begins, id = begins }

local function equals(query, value, kind, column, text, word)
  local condition = by_column[column]
  if condition then
    local list = {}
    for item in text:gmatch "[^,%s]+" do list[#list + 1] = condition(query, value, item) end
    if #list == 0 then errors.usage("'%s': the value is missing", word) end
    return "(" .. table.concat(list, " OR ") .. ")"
  elseif kind == "metric" and text == "nan" then
    return (value:gsub("SELECT value", "SELECT value IS NULL"))
  end
  local places = {}
  for i, meaning in ipairs(meanings(text)) do places[i] = query:bind(meaning) end
  return ("%s IN (%s)"):format(value, table.concat(places, ", "))
end

-- Returns the condition of one filter. != is the negation of =.
local function filter(query, word, name, operator, text)
  local value, kind, column = query:value(name)
  for status in (column == "status" and operator:find("=$") and text or ""):gmatch("[^,]+") do
    local ok, why = suggest.choose("status", status, selection.statuses)
    if not ok then errors.usage("%s", why) end
  end
  if (dates[column] or durations[column]) and operator:find "^!?=$" and not tonumber(text) then
    errors.usage("'%s': compare %s by <, <=, > or >=", word, name)
  end
  if operator == "=" then return equals(query, value, kind, column, text, word) end
  if operator == "!=" then
    return ("coalesce(%s, 0) = 0"):format(equals(query, value, kind, column, text, word))
  elseif operator == "~" then
    return ("instr(lower(%s), lower(%s)) > 0"):format(value, query:bind(text))
  end
  local x = query:bind(number(word, column, text))
  return ("(%s %s %s AND typeof(%s) IN ('integer', 'real'))"):format(value, operator, x, value)
end

-- Splits a filter into its parts; nil if the word is not a filter.
local function parse(word)
  for _, operator in ipairs { "!=", "<=", ">=", "<", ">", "~", "=" } do
    local name, text = word:match("^([^=<>!~@][^=<>!~]*)" .. operator .. "(.*)$")
    if name then return name, operator, text end
  end
end

-- Returns whether a word is @STATUS: a filter, of which one of several must hold.
local function is_status(word)
  return word:sub(1, 1) == "@" and suggest.choose("", word:sub(2), selection.statuses) ~= nil
end

-- Returns whether a word is a filter rather than a name of trials.
function selection.is_filter(word) return parse(word) ~= nil or is_status(word) end

-- ---- Names of trials --------------------------------------------------------------------------

-- Returns whether "lower" or "higher" values of a metric are better, as the newest sweeps of the
-- experiments of the trials that `finished` (SQL) leaves declare it; nil if no trial is left.
-- Raises a usage error if none declares it, or they disagree.
local function better(query, metric, finished)
  local instead, found = ("@best:max:%s or @best:min:%s"):format(metric, metric), nil
  for _, row in ipairs(query:rows([[(SELECT json_extract(plan, '$.better') FROM sweeps s
      WHERE s.experiment = t.experiment ORDER BY s.created DESC, s.id DESC LIMIT 1) AS declared]],
    finished .. "GROUP BY t.experiment")) do
    local own = direction.needed(row.declared and query.store:decode(row.declared), metric,
      "@best:" .. metric, instead)
    if found and own ~= found then
      errors.usage("@best:%s: the experiments of these trials disagree on whether lower or higher "
        .. "values are better; name one experiment, or write %s", metric, instead)
    end
    found = own
  end
  return found
end

-- Returns the condition that selects the best trial. what: METRIC, max:METRIC or min:METRIC.
local function best(query, what)
  local goal, name = what:match "^(m[axin]+):(.+)$"
  if goal ~= "max" and goal ~= "min" then goal, name = nil, what end
  local value = query:value("metric:" .. name)
  local finished = ("AND t.status = 'done' AND abs(%s) < 9e999 "):format(value) -- not inf or NaN
  goal = goal or better(query, name, finished) == "higher" and "max" or "min"
  local rows = query:rows("t.id", ("%sORDER BY %s %s, t.id LIMIT 1"):format(finished, value,
    goal == "max" and "DESC" or "ASC"))
  if #rows == 0 then
    errors.raise(errors.FAILED, "no finished trial has a finite '%s'", name)
  end
  return "t.id = " .. query:bind(rows[1].id)
end

-- Returns the condition that selects the trials started last; in the trash, the trials of the last
-- `rm`.
local function last(query, count)
  if query.trash then return "t.trashed = (SELECT max(trashed) FROM trials)" end
  return ("t.id IN (SELECT t.id FROM trials t WHERE %s ORDER BY t.started DESC, t.id LIMIT %d)")
    :format(query.where, count)
end

local function at_word(query, word)
  local count = word:match("^@last:(%d+)$") or word == "@last" and "1"
  if count then
    count = math.tointeger(tonumber(count)) or 0
    if count < 1 then errors.usage("'%s': write @last:1 or more", word) end
    return last(query, count)
  end
  if word == "@all" then return "1" end
  local metric = word:match("^@best:(.+)$")
  if metric then return best(query, metric) end
  local names = { "last", "all", "best:METRIC" }
  table.move(selection.statuses, 1, #selection.statuses, 4, names)
  errors.usage("'%s' selects no trials%s", word,
    suggest.hint(word:sub(2), names):gsub("'([^']+)'", "'@%1'"))
end

local function by_id(query, word)
  local low = word:lower()
  local rows = query.store:rows(("SELECT id FROM trials t WHERE id >= ? AND id < ? AND %s LIMIT 2")
    :format(query.base), { low, low .. "g" })
  if #rows == 0 then
    errors.usage("no trial's id begins with '%s', and no experiment has that name (see toeplab ls)",
      word)
  end
  if #rows > 1 then errors.usage("more than one trial's id begins with '%s'", word) end
  table.insert(query.named, query:bind(rows[1].id))
end

local function is_experiment(store, word)
  return store:rows("SELECT 1 FROM trials WHERE experiment = ? LIMIT 1", { word })[1] ~= nil
end

-- Returns the condition for a name; for an id, adds it to query.named and returns nil. Raises a
-- usage error if no trial has the name.
local function name_condition(query, word)
  if word:sub(1, 1) == "@" then return at_word(query, word) end
  if is_experiment(query.store, word) then return "t.experiment = " .. query:bind(word) end
  if word:find("^%x+$") then return by_id(query, word) end
  errors.usage("'%s' is neither the id of a trial nor an experiment%s", word,
    suggest.hint(word, query.store:values "SELECT DISTINCT experiment FROM trials"))
end

-- ---- Queries ----------------------------------------------------------------------------------

-- Makes the query of the trials that the words select in store (Records); no words select all.
-- trash: searches only the trials in the trash, otherwise only the others. The field `where` is an
-- SQL condition on trials t.
function selection.new(store, words, trash)
  local query = setmetatable({ store = store, params = { n = 0 }, named = {}, trash = trash,
    status = status_sql(store),
    base = "t.trashed IS " .. (trash and "NOT NULL" or "NULL") }, Query)
  query.where = query.base
  local names, of_status, all, among, chooses = {}, {}, {}, {}, false
  for _, word in ipairs(words) do
    chooses = chooses or word:find "^@last" ~= nil or word:find "^@best:" ~= nil
  end
  for _, word in ipairs(words) do
    local name, operator, text = parse(word)
    if name then
      query.where = ("%s AND %s"):format(query.where, filter(query, word, name, operator, text))
    elseif is_status(word) then
      of_status[#of_status + 1] = query:bind(word:sub(2))
    elseif chooses and is_experiment(store, word) then
      among[#among + 1] = query:bind(word)
    else
      names[#names + 1] = word
    end
  end
  if #among > 0 then
    query.where = ("%s AND t.experiment IN (%s)"):format(query.where, table.concat(among, ", "))
  end
  if #of_status > 0 then
    query.where = ("%s AND %s IN (%s)"):format(query.where, query.status,
      table.concat(of_status, ", "))
  end
  for _, word in ipairs(names) do all[#all + 1] = name_condition(query, word) end
  if #query.named > 0 then
    all[#all + 1] = ("t.id IN (%s)"):format(table.concat(query.named, ", "))
  end
  if #all > 0 then
    query.where = ("%s AND (%s)"):format(query.where, table.concat(all, " OR "))
  end
  return query
end

-- Returns rows of the trials t. what: SQL of the columns; rest: more conditions and the order;
-- limit: the greatest number of rows, applied before the columns are read.
function Query:rows(what, rest, limit)
  local where = self.where
  if limit then
    where = ("t.rowid IN (SELECT t.rowid FROM trials t WHERE %s %s LIMIT %d)"):format(where, rest,
      limit)
  end
  local sql = ("SELECT %s FROM trials t WHERE %s %s"):format(what, where, rest or "")
  local params = { n = 0 }
  for i in sql:gmatch("%?(%d+)") do params.n = math.max(params.n, tonumber(i)) end
  table.move(self.params, 1, params.n, 1, params)
  return self.store:rows(sql, params)
end

-- Returns the words that name an experiment.
function selection.experiments(store, words)
  local list = {}
  for _, word in ipairs(words) do
    local sql = "SELECT 1 FROM trials WHERE experiment = ? AND trashed IS NULL LIMIT 1"
    if store:rows(sql, { word })[1] then list[#list + 1] = word end
  end
  return list
end

-- Returns what to add to the error that no trial matches these words, if they ask for failed ones.
local function other_ends(words)
  for _, word in ipairs(words) do
    if word == "@failed" or word == "status=failed" then
      return "; trials that ended otherwise: @guard, @timeout, @budget, @killed, @interrupted"
    end
  end
  return ""
end

-- Returns the ids of the trials that the words select, last started first. Raises an error, which
-- names the verb, if there are none.
function selection.ids(store, words, verb, trash)
  local list, query = {}, selection.new(store, words, trash)
  for i, row in ipairs(query:rows("t.id", "ORDER BY t.started DESC, t.id")) do list[i] = row.id end
  if #list == 0 then
    errors.raise(errors.FAILED, "%s: no trial matches%s", verb, other_ends(words))
  end
  return list
end

-- Returns the row of v_trials of the only trial that a word, or a list of words, selects.
function selection.one(store, words)
  words = type(words) == "table" and words or { words }
  local text = table.concat(words, " ")
  local ids = selection.ids(store, words, text)
  if #ids > 1 then
    errors.usage("'%s' selects %d trials: name one (see toeplab ls)%s", text, #ids, #words > 1
      and "; names add up, whereas filters such as experiment=NAME restrict" or "")
  end
  return store:rows("SELECT * FROM v_trials WHERE id = ?", { ids[1] })[1]
end

return selection
