-- base/line.lua: line(u, v) returns the slope and the height at 0 of the straight line through the
-- points (u[i], v[i]) by least squares; nil if all u are equal or there are fewer than two points.

return function(u, v)
  local n, su, sv, suu, suv = #u, 0.0, 0.0, 0.0, 0.0
  for i = 1, n do
    su, sv, suu, suv = su + u[i], sv + v[i], suu + u[i] * u[i], suv + u[i] * v[i]
  end
  local spread = n * suu - su * su
  if n < 2 or not (spread > 0) then return nil end
  local slope = (n * suv - su * sv) / spread
  return slope, (sv - slope * su) / n
end
